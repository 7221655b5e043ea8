"""An AMQP message router and bridge: every AMQP on one port, settlement end to end."""

__version__ = "0.1.0"
