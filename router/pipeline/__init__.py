"""Floor 5: the data pipeline on Spark: ledger, audit, traffic, and the ``amqp`` data source.

Everything here needs the extra ``router[spark]``; the router itself never imports it.
"""
