"""AMQP 0-10: both sides of a connection, and its messages."""
