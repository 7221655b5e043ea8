"""Channels of the draft: structured contents, and methods that differ from 0-9-1's.

Theory of operation. The table of ``router.wire.v0_9_1.channel`` decides what is expected on a
channel; here a content may contain others. ``_parts`` are the incomplete contents, the root first::

    METHOD  publish, deliver …            HEADER
    HEADER  header with weight            HEADER   its first child is expected
            header without, with a body   BODY
            header without either         the rest of the enclosing content; METHOD at the end
    BODY    body, not all of it           BODY
            body, the last of it          as after a header without either

Any other frame is incomplete content, or a weight that does not match: 501, which ends the
connection.
"""

from typing import ClassVar

import attrs

from router.errors import DecodeError
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import (
    MAX_BODY_OCTETS,
    Channel,
    ChannelConnection,
    Expect,
    FrameSteps,
)
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9r1 import methods as d
from router.wire.v0_9r1.content import HEAD, HEADER_OCTETS, MAX_DEPTH, Content, fold
from router.wire.v0_9r1.framing import FrameType


@attrs.define(eq=False)
class _Part:
    """An incomplete content.

    Attributes:
        children: the complete ones.
        missing_children, missing_octets: still to arrive.
    """

    header: bytes
    missing_children: int
    missing_octets: int
    children: list[Content] = attrs.field(factory=list)
    body: list[bytes] = attrs.field(factory=list)


class DraftChannel(Channel):
    """The common part of both sides' channels."""

    misplaced = Reply.FRAME_ERROR

    def __init__(self, machine: ChannelConnection, number: int, *arguments: object) -> None:
        self._parts: list[_Part] = []
        self._gathered = 0
        super().__init__(machine, number, *arguments)  # type: ignore[arg-type]

    # --- content ----------------------------------------------------------------------------------

    def _take_content_header(self, octets: bytes, start: int, end: int) -> None:
        if end - start < HEADER_OCTETS:
            raise PeerError(Reply.SYNTAX_ERROR, "content header: too short for its property flags")
        class_id, weight, body_octets = HEAD.unpack_from(octets, start)
        due = self.machine.codec.spec_of(type(self._method)).class_id
        if class_id != due:
            raise PeerError(
                Reply.FRAME_ERROR, f"content header of class {class_id} behind a method of {due}"
            )
        if due != d.BASIC_CLASS:
            self.check_other_content(weight, body_octets)
        if len(self._parts) > MAX_DEPTH:
            raise PeerError(
                Reply.NOT_IMPLEMENTED, f"contents are nested more than {MAX_DEPTH} deep"
            )
        self._count(end - start if self._parts or weight else 0, body_octets)
        self._parts.append(_Part(octets[start:end], weight, body_octets))
        self._go_on()

    def check_other_content(self, weight: int, body_octets: int) -> None:
        """Refuses a content of a class other than basic that is not supported."""
        if weight:
            raise PeerError(Reply.NOT_IMPLEMENTED, "child contents in another class than basic")

    def _count(self, header_octets: int, body_octets: int) -> None:
        """Refuses a content that is too large, with all its children."""
        self._gathered += header_octets + body_octets
        if self._gathered > MAX_BODY_OCTETS:
            self.check_body(self._gathered)

    def _take_content_body(self, octets: bytes, start: int, end: int) -> None:
        part = self._parts[-1]
        part.missing_octets -= end - start
        if part.missing_octets < 0:
            raise PeerError(
                Reply.FRAME_ERROR,
                f"{-part.missing_octets} octets more than the content's body-size",
            )
        part.body.append(octets[start:end])
        self.count_body(end - start)
        self._go_on()

    def _go_on(self) -> None:
        """Sets what is expected next; completes contents."""
        while self._parts:
            part = self._parts[-1]
            if part.missing_children:
                self.expect = Expect.HEADER
                return
            if part.missing_octets:
                self.expect = Expect.BODY
                return
            self._parts.pop()
            content = Content(part.header, tuple(part.children), b"".join(part.body))
            if self._parts:
                self._parts[-1].children.append(content)
                self._parts[-1].missing_children -= 1
            else:
                self._finish_root(content)
                return

    def _finish_root(self, content: Content) -> None:
        method = self._method
        self.drop_content()
        spec = self.machine.codec.spec_of(type(method))
        try:
            header = fold(content) if spec.class_id == d.BASIC_CLASS else content.header
            self.content_handlers[type(method)](self, method, header, content.body)
        except DecodeError as error:
            raise PeerError(
                Reply.SYNTAX_ERROR, error.rule, spec.class_id, spec.method_id
            ) from error
        except PeerError as error:
            raise self.blame(error, spec) from None

    def drop_content(self) -> None:
        """Discards an incomplete content."""
        super().drop_content()
        self._parts.clear()
        self._gathered = 0

    # --- output -----------------------------------------------------------------------------------

    def send(self, method: m.Method) -> None:
        """Sends a method in the draft's form."""
        if isinstance(method, m.ChannelFlowOk):
            return  # flow has no answer here
        super().send(method)

    steps: ClassVar[FrameSteps] = {
        (Expect.METHOD, FrameType.METHOD): Channel._take_method,
        (Expect.HEADER, FrameType.HEADER): _take_content_header,
        (Expect.BODY, FrameType.BODY): _take_content_body,
    }
