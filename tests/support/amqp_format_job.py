"""A Spark job of its own, run outside of the source tree: counts what ``format("amqp")`` consumes.

usage: amqp_format_job.py URL ADDRESS COUNT WAL_DIRECTORY [import]
"""

import sys

from pyspark.sql import SparkSession

url, address, count, directory = sys.argv[1:5]
if sys.argv[5:]:  # where the environment is not activated
    import pyspark_amqp  # noqa: F401
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.host", "127.0.0.1")
    .getOrCreate()
)
rows = (
    spark.read.format("amqp")
    .option("amqp.url", url)
    .option("address", address)
    .option("mode", "consume")
    .option("deliveryGuarantee", "at-least-once")
    .option("maxDeliveriesPerTrigger", count)
    .option("idleTimeoutMs", "120000")
    .option("walDir", directory)
    .load()
)
print("consumed", rows.count())
spark.stop()
