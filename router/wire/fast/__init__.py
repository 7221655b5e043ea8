"""AMQP/Fast 0.7c0 (RFC 006): the engine of 2005's first AMQP, for both sides of a connection."""
