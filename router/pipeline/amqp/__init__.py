"""The Spark data source ``amqp``: reads from and writes to AMQP addresses, exactly once.

Spark requires of a source that the same offsets give the same rows, at any later time and in any
process, until they are committed. An AMQP address cannot do that. Therefore the *reader* writes
what it receives to a log of its own (``wal``) before it reports offsets to Spark, and settles with
the peer when Spark has committed. The *writer* spools a batch in the same directory, and sends the
spool when the batch is complete (``spool``). Both persist the state of their link's end, so that
after a ``kill -9`` the link is resumed (§2.6.13), not attached as a new one.
"""
