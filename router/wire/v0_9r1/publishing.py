"""A client's publishes in the draft, and the answers to it.

Packets of a stream are unacknowledged and in no transaction; a ``mandatory`` packet is returned all
the same when there is no route.

Answers to the publisher, by the outcome of the delivery. ``basic.return`` is sent for a mandatory
publish, in a transaction before its ``commit-ok``::

    accepted                        nothing; in a transaction commit-ok
    rejected, amqp:not-found        return 404; nothing for a publish that is not mandatory
    released, modified              return 310; or channel.close 310 if it was not mandatory
    rejected                        return 403; likewise

Only in a transaction or with ``mandatory`` a publish has an outcome: others are settled on arrival.
Commits do not wait for each other, so that several transactions can be under way; their answers are
sent in order.
"""

from collections.abc import Sequence

from router.model import condition as conditions
from router.model.outcome import DeliveryState, Rejected
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.content import content_layout
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.reply import Reply
from router.wire.v0_9r1 import kinds
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.framing import FRAMING, FrameType
from router.wire.v0_9r1.kinds import BASIC, FILE, STREAM


class DraftPublishing(Publishing):
    """The publishes of one channel."""

    refused_commit = Reply.NOT_DELIVERED

    def send_back(self, numbers: Sequence[int], state: DeliveryState | None) -> Sequence[int]:
        """Sends back refused publishes that may be returned; returns the others."""
        code, text = _return_of(state)
        left = [number for number in numbers if not self.send_return(number, code, text)]
        return () if code is Reply.NOT_FOUND else left

    def publish_file(self, method: m.BasicPublish, header: bytes, body: bytes) -> None:
        """Handles a staged file."""
        inlet, content = self.understand(method, header, body)
        self.submit(inlet, _marked(FILE, content), method.mandatory)

    def publish_packet(self, method: m.BasicPublish, header: bytes, body: bytes) -> None:
        """Handles a packet of a stream, which is part of no transaction."""
        inlet, content = self.understand(method, header, body)
        self.submit_now(inlet, _marked(STREAM, content), method.mandatory)

    def return_frames(self, method: m.BasicReturn, content: bytes) -> bytes:
        """Encodes the frames of a returned publish, in its class."""
        kind = kinds.kind_of(content)
        if kind is BASIC:
            return super().return_frames(method, content)
        layout = content_layout(content)
        engine, number = self._engine, self.channel.number
        returned = o.FileReturn if kind is FILE else o.StreamReturn
        said = returned(
            reply_code=method.reply_code,
            reply_text=method.reply_text,
            exchange=method.exchange,
            routing_key=method.routing_key,
        )
        header = content[layout.route_end : layout.body_start]
        header = kinds.from_basic(kind, header, layout.body_octets)
        return FRAMING.frame(
            FrameType.METHOD, number, engine.codec.encode(said)
        ) + FRAMING.content_frames(number, header, content[layout.body_start :], engine.frame_max)


def _marked(kind: kinds.Kind, content: bytes) -> bytes:
    """Records in a content with which class it was published."""
    return bytes((kind.mark,)) + content[1:]


def _return_of(state: DeliveryState | None) -> tuple[Reply, str]:
    """Returns the code and text with which an outcome is returned."""
    if not isinstance(state, Rejected):
        return Reply.NOT_DELIVERED, "nobody has taken it"
    error = state.error
    if error is not None and error.name == conditions.NOT_FOUND:
        return Reply.NOT_FOUND, "no route takes it"
    return Reply.ACCESS_REFUSED, "rejected" if error is None else str(error)
