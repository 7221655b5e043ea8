"""AMQP 0-9-1, with 0-9 and 0-8 where they differ little, as brokers and clients speak it."""
