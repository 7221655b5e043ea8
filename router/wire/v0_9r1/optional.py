"""The methods of the draft's optional classes: file (7), stream (8) and test (11).

Fields and numbers are those that were published with this protocol header in December 2005. The
meaning of class test's operations is INFERRED: the tables have the field alone, 0-8 says 1 is the
sum, 2 the least, 3 the greatest; of strings: all of them, the shortest, the longest.
"""

from typing import Final

import attrs

from router.wire.v0_9_1.codec import Sender, Spec
from router.wire.v0_9_1.methods import (
    Bit,
    FieldTable,
    Long,
    LongLong,
    LongStr,
    Octet,
    OtherMethod,
    Short,
    ShortStr,
    Words,
)

FILE_CLASS: Final = 7
STREAM_CLASS: Final = 8
TEST_CLASS: Final = 11


# --- class file (7) -------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class FileConsume(OtherMethod):
    """Starts a consumer of files, with its prefetch."""

    ticket: Short = 0
    queue: ShortStr = ""
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    no_local: Bit = False
    auto_ack: Bit = False
    exclusive: Bit = False


@attrs.frozen
class FileConsumeOk(OtherMethod):
    """The consumer is started; with the tag that the server chose."""

    consumer_tag: Short = 0


@attrs.frozen
class FileCancel(OtherMethod):
    """Cancels a consumer of files."""

    consumer_tag: Short = 0


@attrs.frozen
class FileCancelOk(OtherMethod):
    """The consumer is cancelled."""


@attrs.frozen
class FileOpen(OtherMethod):
    """Asks how much of a content the other side has from an earlier attempt."""

    identifier: ShortStr = ""
    content_size: LongLong = 0


@attrs.frozen
class FileOpenOk(OtherMethod):
    """How many octets of the content are present."""

    staged_size: LongLong = 0


@attrs.frozen
class FileStage(OtherMethod):
    """The remainder of the content that was opened; content follows."""


@attrs.frozen(kw_only=True)
class FilePublish(OtherMethod):
    """Publishes the staged content."""

    ticket: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False
    identifier: ShortStr = ""


@attrs.frozen(kw_only=True)
class FileReturn(OtherMethod):
    """Returns a file that could not be delivered; content follows."""

    reply_code: Short = 0
    reply_text: Words = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@attrs.frozen(kw_only=True)
class FileDeliver(OtherMethod):
    """Delivers the staged content to a consumer."""

    consumer_tag: Short = 0
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    identifier: ShortStr = ""


@attrs.frozen
class FileAck(OtherMethod):
    """Acknowledges files."""

    delivery_tag: LongLong = 0
    multiple: Bit = False


@attrs.frozen
class FileReject(OtherMethod):
    """Rejects a file."""

    delivery_tag: LongLong = 0
    requeue: Bit = False


# --- class stream (8) -----------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class StreamConsume(OtherMethod):
    """Starts a consumer of a stream, with its limit in octets per second."""

    ticket: Short = 0
    queue: ShortStr = ""
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    consume_rate: Long = 0
    no_local: Bit = False
    exclusive: Bit = False


@attrs.frozen
class StreamConsumeOk(OtherMethod):
    """The consumer is started; with the tag that the server chose."""

    consumer_tag: Short = 0


@attrs.frozen
class StreamCancel(OtherMethod):
    """Cancels a consumer of a stream."""

    consumer_tag: Short = 0


@attrs.frozen
class StreamCancelOk(OtherMethod):
    """The consumer is cancelled."""


@attrs.frozen(kw_only=True)
class StreamPublish(OtherMethod):
    """One packet of a stream; content follows."""

    ticket: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@attrs.frozen(kw_only=True)
class StreamReturn(OtherMethod):
    """Returns a packet that could not be delivered; content follows."""

    reply_code: Short = 0
    reply_text: Words = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@attrs.frozen(kw_only=True)
class StreamDeliver(OtherMethod):
    """Delivers a packet to a consumer of the queue; content follows."""

    delivery_tag: LongLong = 0
    exchange: ShortStr = ""
    queue: ShortStr = ""


# --- class test (11) ------------------------------------------------------------------------------


@attrs.frozen
class TestInteger(OtherMethod):
    """Requests a sum, the least or the greatest of integers of all widths."""

    integer_1: Octet = 0
    integer_2: Short = 0
    integer_3: Long = 0
    integer_4: LongLong = 0
    operation: Octet = 0


@attrs.frozen
class TestIntegerOk(OtherMethod):
    """The requested integer."""

    result: LongLong = 0


@attrs.frozen
class TestString(OtherMethod):
    """Requests two strings joined, the shorter or the longer."""

    string_1: ShortStr = ""
    string_2: LongStr = b""
    operation: Octet = 0


@attrs.frozen
class TestStringOk(OtherMethod):
    """The requested string."""

    result: LongStr = b""


@attrs.frozen
class TestTable(OtherMethod):
    """Requests the same of all integers and of all strings of a table."""

    table: FieldTable = attrs.field(factory=dict)
    integer_op: Octet = 0
    string_op: Octet = 0


@attrs.frozen
class TestTableOk(OtherMethod):
    """The results for a table."""

    integer_result: LongLong = 0
    string_result: LongStr = b""


@attrs.frozen
class TestContent(OtherMethod):
    """Requests the checksum of the content that follows."""


@attrs.frozen
class TestContentOk(OtherMethod):
    """The checksum; the same content follows."""

    content_checksum: Long = 0


_C, _S, _E = Sender.CLIENT, Sender.SERVER, Sender.EITHER

SPECS: Final = (
    Spec(7, 1, FileConsume, _C),
    Spec(7, 2, FileConsumeOk, _S),
    Spec(7, 3, FileCancel, _C),
    Spec(7, 4, FileCancelOk, _S),
    Spec(7, 5, FileOpen, _E),
    Spec(7, 6, FileOpenOk, _E),
    Spec(7, 7, FileStage, _E, has_content=True),
    Spec(7, 8, FilePublish, _C),
    Spec(7, 9, FileReturn, _S, has_content=True),
    Spec(7, 10, FileDeliver, _S),
    Spec(7, 11, FileAck, _C),
    Spec(7, 12, FileReject, _C),
    Spec(8, 1, StreamConsume, _C),
    Spec(8, 2, StreamConsumeOk, _S),
    Spec(8, 3, StreamCancel, _C),
    Spec(8, 4, StreamCancelOk, _S),
    Spec(8, 5, StreamPublish, _C, has_content=True),
    Spec(8, 6, StreamReturn, _S, has_content=True),
    Spec(8, 7, StreamDeliver, _S, has_content=True),
    Spec(11, 1, TestInteger, _E),
    Spec(11, 2, TestIntegerOk, _E),
    Spec(11, 3, TestString, _E),
    Spec(11, 4, TestStringOk, _E),
    Spec(11, 5, TestTable, _E),
    Spec(11, 6, TestTableOk, _E),
    Spec(11, 7, TestContent, _E, has_content=True),
    Spec(11, 8, TestContentOk, _E, has_content=True),
)
"""Every method of these classes."""
