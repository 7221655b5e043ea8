"""The octets of what routers of a mesh tell each other: AMQP 1.0 values, one map a message.

``routes.mesh`` knows the maps, and cannot know the codec of a protocol; here both meet.
"""

from router.errors import DecodeError
from router.routes.mesh.fields import FieldError
from router.routes.mesh.messages import read_message, to_value
from router.routes.mesh.nouns import Message
from router.wire.v1_0.types import decode_value, encode_value

MESSAGE_OCTETS_MOST = 1 << 20
"""Octets of a message; the largest that a router sends has some 120 KiB."""


class Codec10:
    """AMQP 1.0 values, for bodies of entries (``routes.mesh.bodies.Codec``)."""

    def encode(self, value: object) -> bytes:
        """Returns the octets of a value."""
        return encode_value(value)

    def decode(self, octets: bytes) -> object:
        """Returns the one value that the octets are.

        Raises:
            DecodeError: they are none, or more follow.
        """
        value, end = decode_value(octets, 0)
        if end != len(octets):
            raise DecodeError(end, "octets follow the value")
        decoded: object = value
        return decoded


def encode_message(message: Message) -> bytes:
    """Returns the octets of a message."""
    return encode_value(to_value(message))


def decode_message(octets: bytes) -> Message | str:
    """Returns the message that octets are, or the rule that they break, naming the field."""
    if len(octets) > MESSAGE_OCTETS_MOST:
        return f"a message has at most {MESSAGE_OCTETS_MOST} octets, not {len(octets)}"
    try:
        return read_message(Codec10().decode(octets))
    except (DecodeError, FieldError) as error:
        return str(error)
