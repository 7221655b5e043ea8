"""A Spark job that streams an address to another one, until the first is empty.

usage: amqp_stream_job.py URL FROM TO DIRECTORY PLACE

The checkpoint is in DIRECTORY; logs of messages are in PLACE, a directory or a URL.
"""

import sys

from pyspark.sql import SparkSession

url, source, target, directory, place = sys.argv[1:6]
spark = SparkSession.builder.appName("amqp stream").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
messages = (
    spark.readStream.format("amqp")
    .option("amqp.url", url)
    .option("address", source)
    .option("walDir", f"{place}/wal")
    .option("maxDeliveriesPerTrigger", 100)
    .option("minPartitions", 2)
    .option("idleTimeoutMs", 3000)
    .load()
)
query = (
    messages.select("message")
    .writeStream.format("amqp")
    .option("amqp.url", url)
    .option("address", target)
    .option("walDir", f"{place}/spool")
    .option("checkpointLocation", f"{directory}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
print("batches", len(query.recentProgress), flush=True)
spark.stop()
