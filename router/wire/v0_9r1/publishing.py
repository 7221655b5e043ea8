"""What a client of the draft publishes, and what it learns.

What a stream carries is unacknowledged and in no transaction; a ``mandatory`` packet comes back all
the same when no route takes it.

What a publisher learns, by the outcome of its delivery. ``basic.return`` comes for a mandatory
publish, in a transaction before its ``commit-ok``::

    accepted                        nothing; in a transaction commit-ok
    rejected, amqp:not-found        return 404; nothing for a publish that is not mandatory
    released, modified              return 310; or channel.close 310 if it was not mandatory
    rejected                        return 403; likewise

Only a transaction or ``mandatory`` makes an outcome matter: other publishes are settled when they
come. Commits do not wait for each other, so that transactions can be under way one behind the
other; their answers come in order.
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
        """Returns what was not taken and may be returned; returns those that this does not tell."""
        code, text = _return_of(state)
        left = [number for number in numbers if not self.send_return(number, code, text)]
        return () if code is Reply.NOT_FOUND else left

    def publish_file(self, method: m.BasicPublish, header: bytes, body: bytes) -> None:
        """Handles a file that was staged."""
        inlet, content = self.understand(method, header, body)
        self.submit(inlet, _marked(FILE, content), method.mandatory)

    def publish_packet(self, method: m.BasicPublish, header: bytes, body: bytes) -> None:
        """Handles a packet of a stream, which is part of no transaction."""
        inlet, content = self.understand(method, header, body)
        self.submit_now(inlet, _marked(STREAM, content), method.mandatory)

    def return_frames(self, method: m.BasicReturn, content: bytes) -> bytes:
        """Makes the frames of a publish that is sent back, in the class that it came by."""
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
    """Writes into a content by which class it came."""
    return bytes((kind.mark,)) + content[1:]


def _return_of(state: DeliveryState | None) -> tuple[Reply, str]:
    """Words an outcome that is not accepted as a ``basic.return``."""
    if not isinstance(state, Rejected):
        return Reply.NOT_DELIVERED, "nobody has taken it"
    error = state.error
    if error is not None and error.name == conditions.NOT_FOUND:
        return Reply.NOT_FOUND, "no route takes it"
    return Reply.ACCESS_REFUSED, "rejected" if error is None else str(error)
