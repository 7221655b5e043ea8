"""The data source ``amqp`` as Spark knows it."""

from typing import Any

from pyspark.sql.datasource import DataSource

from router.pipeline.amqp.options import read_options
from router.pipeline.schema import MESSAGES, spark_ddl


class AmqpDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """Reads from and writes to AMQP addresses; see the package."""

    @classmethod
    def name(cls) -> str:
        """Returns the name of the format."""
        return "amqp"

    def schema(self) -> str:
        """Returns the columns that are read."""
        return spark_ddl(MESSAGES)

    def reader(self, schema: Any) -> Any:
        """Makes a reader for a batch."""
        from router.pipeline.amqp.source import AmqpBatchReader  # noqa: PLC0415

        return AmqpBatchReader(read_options(self.options))

    def streamReader(self, schema: Any) -> Any:  # noqa: N802  Spark's name
        """Makes a reader for a stream."""
        from router.pipeline.amqp.parallel import ParallelStreamReader  # noqa: PLC0415
        from router.pipeline.amqp.source import AmqpStreamReader, has_one_link  # noqa: PLC0415

        options = read_options(self.options)
        return (AmqpStreamReader if has_one_link(options) else ParallelStreamReader)(options)

    def writer(self, schema: Any, overwrite: bool) -> Any:
        """Makes a writer for a batch."""
        from router.pipeline.amqp.sink import AmqpBatchWriter  # noqa: PLC0415

        return AmqpBatchWriter(read_options(self.options), self.options)

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802  Spark's name
        """Makes a writer for a stream."""
        from router.pipeline.amqp.sink import AmqpStreamWriter  # noqa: PLC0415

        return AmqpStreamWriter(read_options(self.options), self.options)
