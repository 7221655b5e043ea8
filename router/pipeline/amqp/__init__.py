"""The Spark data source ``amqp``: reads from and writes to AMQP addresses, exactly once.

Spark wants of a source that the same offsets give the same rows, at any later time and in any
process, until they are committed. An AMQP address does not give that. So the *reader* writes what
it receives to a log of its own (``wal``) before Spark hears of it, and settles with the peer when
Spark has committed. The *writer* spools a batch in the same directory, and sends the spool when the
whole batch is there (``spool``). Both keep what their link's end must know, so that after a
``kill -9`` the link is resumed (§2.6.13), not begun anew.
"""
