"""AMQP 1.0 (ISO/IEC 19464), both sides."""
