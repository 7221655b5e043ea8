"""Our dispositions, gathered into ranges (§2.6.12, §2.7.6).

Theory of operation. The core's updates are not sent at once: ``Settling`` gathers one direction of
one session until output is requested, so that neighbors become ranges, whatever their link and
command. Two updates of one delivery must keep their order; the first can only be an unsettled one,
so the gathered updates are sent before an update of the other kind, settled or not, is added.
"""

from typing import Final
from typing import Protocol as Interface

from router.model import serial
from router.model.outcome import DeliveryState
from router.model.terminus import Role
from router.wire.v1_0.fitting import fit_settlement, fit_state
from router.wire.v1_0.performatives import encode_disposition

KINDS: Final = 16
"""Most states gathered at once; rejections with different errors would grow a long list."""

_HEAD_OCTETS: Final = 32
"""Upper bound of the size of a disposition without its state."""


class SettlingSession(Interface):
    """The session to which the dispositions are sent."""

    @property
    def max_body_octets(self) -> int:
        """Largest body of a frame that the peer accepts, in octets."""

    def send(self, body: bytes) -> None:
        """Sends a frame."""


class Settling:
    """Gathered dispositions of one direction of one session."""

    __slots__ = ("_kinds", "_role", "_settled")

    def __init__(self, role: Role) -> None:
        self._role = role
        self._settled = True
        self._kinds: list[tuple[DeliveryState | None, list[int]]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing is gathered."""
        return not self._kinds

    def must_send_before(self, state: DeliveryState | None, settled: bool) -> bool:
        """Returns whether the gathered updates must be sent before such an update is added."""
        if not self._kinds:
            return False
        if settled is not self._settled or len(self._kinds) >= KINDS:
            return True
        return not settled and self._find(state) is None

    def add(self, ids: list[int], state: DeliveryState | None, settled: bool) -> None:
        """Gathers an update of deliveries; takes ownership of the list."""
        self._settled = settled
        found = self._find(state)
        if found is None:
            self._kinds.append((state, ids))
        else:
            found.extend(ids)

    def _find(self, state: DeliveryState | None) -> list[int] | None:
        for kind, ids in self._kinds:
            if kind is state or (type(kind) is type(state) and kind == state):
                return ids
        return None

    def send(self, session: SettlingSession) -> None:
        """Sends the gathered updates as ranges."""
        kinds = self._kinds
        self._kinds = []
        for state, ids in kinds:
            for first, last in ranges(ids):
                self._send_range(session, first, None if first == last else last, state)

    def _send_range(
        self, session: SettlingSession, first: int, last: int | None, state: DeliveryState | None
    ) -> None:
        body = encode_disposition(self._role, first, last, self._settled, state)
        most = session.max_body_octets
        if len(body) > most:
            fit = fit_settlement if self._settled else fit_state
            short = fit(state, most - _HEAD_OCTETS)
            body = encode_disposition(self._role, first, last, self._settled, short)
        session.send(body)


def ranges(ids: list[int]) -> list[tuple[int, int]]:
    """Sorts distinct delivery-ids in serial order and joins neighbors; both ends are included."""
    first = ids[0]
    count = len(ids)
    if count == 1:
        return [(first, first)]
    if ids[-1] - first == count - 1 and ids == list(range(first, first + count)):
        return [(first, ids[-1])]
    ids.sort()
    if ids[-1] - ids[0] >= serial.HALF:
        # The ids wrap around 2^32: those of the upper half come first.
        ids.sort(key=lambda each: (each + serial.HALF) & serial.MASK)
    joined: list[tuple[int, int]] = []
    first = last = ids[0]
    for each in ids[1:]:
        if each == (last + 1) & serial.MASK:
            last = each
        else:
            joined.append((first, last))
            first = last = each
    joined.append((first, last))
    return joined
