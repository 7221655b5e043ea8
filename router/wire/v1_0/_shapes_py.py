"""How transfers look, learned and repeated: the express lane's pure twin.

A *shape* is what stays the same in the transfers of one incoming link, a *template* what stays the
same in those of one outgoing link. Both leave out size, delivery-id, tag and payload.
"""

import struct
from itertools import repeat
from typing import Final

from router.wire.v1_0.state import LinkState

TRANSFER_OCTETS: Final = 40
"""More than the frame header and performative of any transfer that the lane writes."""

_u32 = struct.Struct(">I")
_unpack_u32 = _u32.unpack_from
_pack_u32 = _u32.pack
_BOOLEANS: Final = {0x41: True, 0x42: False}
_UINT8: Final = (b"\x43", *(b"\x52%c" % value for value in range(1, 256)))


class Shape:
    """How the transfers of one link look, but for size, delivery-id, tag and payload.

    Attributes:
        head: from behind the size to the constructor of the delivery-id.
        tag_head: constructor and size of the tag.
        tail: message-format, settled and so on.
        lead: the first octets of the payload: of its header section if it has one.
        payload_at: where the payload begins.
        unpack: reads size, head, id, tag head, tag, and tail with lead.
        rows: payload size → reads id, tag and payload of frames of one size.
    """

    __slots__ = (
        "body",
        "head",
        "lead",
        "link",
        "payload_at",
        "rows",
        "settled",
        "tag_head",
        "tag_octets",
        "unpack",
    )

    def __init__(  # noqa: PLR0917  positions in a frame, in their order
        self,
        link: LinkState,
        head: bytes,
        tag_head: bytes,
        tag_octets: int,
        tail: bytes,
        lead: bytes,
        settled: bool,
    ) -> None:
        self.link = link
        self.head = head
        self.tag_head = tag_head
        self.tag_octets = tag_octets
        self.body = tail + lead
        self.lead = lead
        self.settled = settled
        self.unpack = struct.Struct(
            f">I{len(head)}sI{len(tag_head)}s{tag_octets}s{len(self.body)}s"
        ).unpack_from
        self.payload_at = 4 + len(head) + 4 + len(tag_head) + tag_octets + len(tail)
        self.rows: dict[int, struct.Struct] = {}

    def rows_of(self, payload_octets: int) -> struct.Struct:
        """Gives what reads whole frames with payloads of one size: all columns but the size."""
        found = self.rows.get(payload_octets)
        if found is None:
            tail = len(self.body) - len(self.lead)
            found = struct.Struct(
                f">{4 + len(self.head)}sI{len(self.tag_head)}s{self.tag_octets}s"
                f"{tail}s{payload_octets}s"
            )
            if len(self.rows) >= 64:
                self.rows.clear()
            self.rows[payload_octets] = found
        return found

    def take_block(  # noqa: PLR0917  positions, in their order
        self,
        data: bytes,
        at: int,
        size: int,
        count: int,
        tags: list[bytes],
        payloads: list[bytes],
    ) -> int:
        """Reads ``count`` frames of one size at once; the first is known to fit.

        Returns:
            how many, from the first one on, have the shape; their tags and payloads were added.
        """
        region = data[at : at + size * count]
        rows = list(self.rows_of(size - self.payload_at).iter_unpack(region))
        heads, ids, tag_heads, row_tags, tails, row_payloads = zip(*rows, strict=True)
        first = ids[0]
        payload_at = self.payload_at
        if (
            ids == tuple(range(first, first + count))
            and heads.count(heads[0]) == count
            and tag_heads.count(tag_heads[0]) == count
            and tails.count(tails[0]) == count
            and all(
                region[payload_at + offset :: size].count(octet) == count
                for offset, octet in enumerate(self.lead)
            )
        ):
            tags += row_tags
            payloads += row_payloads
            return count
        lead = self.lead
        fit = 0
        for head, an_id, tag_head, tag, tail, payload in rows:
            if (
                an_id != first + fit
                or head != heads[0]
                or tag_head != tag_heads[0]
                or tail != tails[0]
                or not payload.startswith(lead)
            ):
                break
            tags.append(tag)
            payloads.append(payload)
            fit += 1
        return fit


class Template:
    """How transfers look on an outgoing link: all octets but size, delivery-id, tag and payload.

    Octet for octet what ``performatives.encode_transfer`` makes.
    """

    __slots__ = ("_handle", "_head", "_octets", "_pack", "_small_head", "_tail")

    def __init__(self, out: LinkState, settled: bool) -> None:
        handle = out.handle
        handle_octets = _UINT8[handle] if handle < 256 else b"\x70" + _pack_u32(handle)
        before = b"\x02\x00%b\x00\x53\x14\xc0" % out.session.channel.to_bytes(2, "big")
        list_octets = 1 + len(handle_octets) + 5 + 6 + 2
        self._small_head = before
        self._handle = b"\x05" + handle_octets
        self._head = before + b"%c\x05%b\x70" % (list_octets, handle_octets)
        self._tail = b"\x43\x41" if settled else b"\x43\x42"
        pattern = struct.Struct(f">I{len(self._head)}sI2sI2s")
        self._octets = pattern.size
        self._pack = pattern.pack

    def one(self, payload_octets: int, an_id: int, number: int) -> bytes:
        """Makes what stands before the payload of one delivery."""
        if an_id >= 256:
            size = self._octets + payload_octets
            return self._pack(size, self._head, an_id, b"\xa0\x04", number, self._tail)
        fields = b"%b%b\xa0\x04%b%b" % (
            self._handle,
            _UINT8[an_id],
            _pack_u32(number),
            self._tail,
        )
        head = b"%b%c%b" % (self._small_head, len(fields), fields)
        return _pack_u32(4 + len(head) + payload_octets) + head

    def many(self, payloads: list[bytes], octets: int, an_id: int, number: int) -> list[bytes]:
        """Makes what stands before each payload of a run; ``octets`` as in ``Run``."""
        count = len(payloads)
        if an_id < 256:
            return [
                self.one(len(payload), an_id + step, number + step)
                for step, payload in enumerate(payloads)
            ]
        sizes = (
            repeat(self._octets + octets, count)
            if octets >= 0
            else map((self._octets).__add__, map(len, payloads))
        )
        ids = range(an_id, an_id + count)
        numbers = range(number, number + count)
        return list(
            map(
                self._pack,
                sizes,
                repeat(self._head),
                ids,
                repeat(b"\xa0\x04"),
                numbers,
                repeat(self._tail),
            )
        )


def overhead_of(handle: int, an_id: int) -> int:
    """Tells how many octets a transfer of the lane has before its payload."""
    octets = 8 + 3 + 3 + 6 + 2
    octets += 1 if handle == 0 else 2 if handle < 256 else 5
    return octets + (1 if an_id == 0 else 2 if an_id < 256 else 5)


def read_uint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a uint in any of its three forms (§1.6.5); returns it and where the next field is."""
    code = data[at]
    if code == 0x70:
        return _unpack_u32(data, at + 1)[0], at + 5
    if code == 0x52:
        return data[at + 1], at + 2
    if code == 0x43:
        return 0, at + 1
    raise KeyError(code)


def read_uint_or_null(data: bytes, at: int) -> tuple[int | None, int]:
    """Reads a uint that may be null; returns it and where the next field is."""
    return (None, at + 1) if data[at] == 0x40 else read_uint(data, at)


def read_flag(data: bytes, at: int) -> tuple[bool, int]:
    """Reads a boolean, null for false; returns it and where the next field is."""
    code = data[at]
    return code != 0x40 and _BOOLEANS[code], at + 1


def lead_of(data: bytes, at: int, end: int) -> int:
    """Tells how many octets of a payload decide that it needs no look; 0: it needs one.

    A header section must be without ttl, which would have to be counted down (§3.2.1), and what
    follows it, or stands in its place, no delivery annotations, which go no further (§3.2.2). All
    other sections are the receiver's business, and three octets show that there is one.
    """
    if end - at < 4 or data[at : at + 2] != b"\x00\x53":
        return 0
    header_end = at
    if data[at + 2] == 0x70:
        header_end = _end_of_header(data, at, end)
        if not header_end:
            return 0
    if end - header_end < 3 or data[header_end : header_end + 2] != b"\x00\x53":
        return 0
    return header_end + 3 - at if 0x72 <= data[header_end + 2] <= 0x78 else 0


def _end_of_header(data: bytes, at: int, end: int) -> int:
    """Gives where a header section without ttl ends; 0: it is none, or of an unusual form."""
    if data[at + 3] == 0x45:
        return at + 4
    if data[at + 3] != 0xC0 or end - at < 6:
        return 0
    header_end = at + 5 + data[at + 4]
    count = data[at + 5]
    field = at + 6
    if not field <= header_end <= end:
        return 0
    for one_octet in (b"\x40\x41\x42", b"\x40")[:count]:  # durable, priority
        if field >= header_end:
            return 0
        field += 1 if data[field] in one_octet else 2
    if count > 2 and (field >= header_end or data[field] != 0x40):
        return 0
    return header_end
