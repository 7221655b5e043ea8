"""What a connection's octets go through, for people: tcp, tls, ws, wss or unix."""

import socket

from router.net.connection import Connection
from router.net.websocket import WebSocketEngine


def transport_of(connection: Connection) -> str:
    """Returns the name of what lies below AMQP."""
    is_tls = connection.stream is not None
    if isinstance(connection.engine, WebSocketEngine):
        return "wss" if is_tls else "ws"
    if is_tls:
        return "tls"
    return "unix" if connection.socket.family == socket.AF_UNIX else "tcp"
