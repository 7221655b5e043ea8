"""Lets Spark find ``format("amqp")`` by itself: it looks into modules named ``pyspark_*``."""

from router.pipeline.amqp.datasource import AmqpDataSource as DefaultSource

__all__ = ["DefaultSource"]
