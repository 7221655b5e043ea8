"""AMQP management: the node ``$management``, answered from the same records as the JSON API."""
