"""AMQP/Fast 0.7c0 (RFC 006), the first AMQP of 2005, for both sides of a connection."""
