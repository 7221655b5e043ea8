"""A Spark job that moves messages from one address to another: run by itself, or by spark-submit.

usage: bridge_job.py URL SOURCE TARGET DIRECTORY [MASTER [ARCHIVE]]

ARCHIVE is a file of loaded classes, by which Java starts in half the time. If it is not there, the
job moves what there is, writes that file, and ends.
"""

import sys
from pathlib import Path

from router.pipeline.session import open_session


def main(url: str, source: str, target: str, directory: str, *more: str) -> None:
    master = more[0] if more else "local[1]"
    archive = more[1] if len(more) > 1 else None
    java = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    is_trial = archive is not None and not Path(archive).exists()
    if archive is not None:
        java += f" -XX:{'ArchiveClassesAtExit' if is_trial else 'SharedArchiveFile'}={archive}"
    settings = {
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "1",
        "spark.default.parallelism": "1",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.driver.extraJavaOptions": java,
    }
    spark = open_session("bridge", master, settings)
    messages = (
        spark.readStream.format("amqp")
        .option("amqp.url", url)
        .option("address", source)
        .option("walDir", f"{directory}/wal")
        .option("maxDeliveriesPerTrigger", 20)
        .load()
    )
    writer = (
        messages.select("message")
        .writeStream.format("amqp")
        .option("amqp.url", url)
        .option("address", target)
        .option("walDir", f"{directory}/spool")
        .option("checkpointLocation", f"{directory}/checkpoint")
    )
    if is_trial:
        writer = writer.trigger(availableNow=True)
    gateway = spark.sparkContext._gateway
    writer.start().awaitTermination()
    spark.stop()
    gateway.proc.stdin.close()
    gateway.proc.wait()  # it writes the archive as it ends


if __name__ == "__main__":
    main(*sys.argv[1:])
