"""AMQP draft 0.9 revision 1 of 2005 (header ``AMQP 1 1 9 1``), as server and as client."""
