"""AMQP 0-9-1, with the small differences of 0-9 and 0-8, as brokers and clients implement it."""
