"""A Spark job that moves messages from one address to another: run by itself, or by spark-submit.

usage: bridge_job.py URL SOURCE TARGET DIRECTORY [MASTER]
"""

import sys

from router.pipeline.session import open_session


def main(url: str, source: str, target: str, directory: str, master: str = "local[2]") -> None:
    settings = {
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = open_session("bridge", master, settings)
    messages = (
        spark.readStream.format("amqp")
        .option("amqp.url", url)
        .option("address", source)
        .option("walDir", f"{directory}/wal")
        .option("maxDeliveriesPerTrigger", 50)
        .load()
    )
    query = (
        messages.select("message")
        .writeStream.format("amqp")
        .option("amqp.url", url)
        .option("address", target)
        .option("walDir", f"{directory}/spool")
        .option("checkpointLocation", f"{directory}/checkpoint")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
