"""Claims-based security (CBS, working draft): a token is put before anything else is done.

Theory of operation. ``CbsEngine`` wraps the engine of a connection that we dialed,
as TLS does. When the peer's open has arrived it attaches a link to ``$cbs`` and one from it, puts a
token, and withholds the event of the open until the peer has accepted the token, so that
no link is attached that would be refused. Before the token expires it puts a new one on the same
links. If the peer refuses a token, now or later, the connection ends with the peer's reason.

    WAITING  until the peer's open          ASKING   a token was put, the answer is awaited
    OPENING  until the links have credit    HOLDING  the token is good for ``renew_seconds``

    WAITING -> OPENING -> ASKING -> HOLDING -> ASKING, or OPENING    any -> FAILED: it is closed
"""

import base64
import enum
import errno
import hashlib
import hmac
import itertools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus

import attrs

from router.errors import DecodeError
from router.looking import Looker
from router.model.commands import (
    AttachLink,
    CloseConnection,
    GrantCredit,
    SendDeliveries,
    UpdateDeliveries,
)
from router.model.condition import NO_REASON, UNAUTHORIZED_ACCESS, Condition
from router.model.delivery import OutgoingDelivery, ReceivedDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Source, Target
from router.net.around import EngineAround
from router.regular import read_regular
from router.wire.v1_0.sections import (
    AnnotatedMessage,
    Properties,
    decode_message,
    encode_message,
)

NODE: Final = "$cbs"
PATIENCE_SECONDS: Final = 15.0
"""The longest that an answer may take."""

SAS_TYPE: Final = "servicebus.windows.net:sastoken"
JWT_TYPE: Final = "jwt"
_CREDIT: Final = 4


@attrs.frozen(kw_only=True)
class Claims:
    """What is claimed, and by which token.

    Attributes:
        audience: what the token is for.
        kind: of the token, as the peer calls it.
        renew_seconds: after which a new one is put.
        make_token: gives a token that is good for longer than that; the argument is the time in
            seconds since 1970.
    """

    audience: str
    kind: str
    renew_seconds: float
    make_token: Callable[[float], str] = attrs.field(repr=False)


def sas_token(audience: str, name: str, key: str, ends_at: int) -> str:
    """Makes a shared access signature, as Azure Service Bus and Event Hubs take it.

    Args:
        audience: the resource.
        name: of the key.
        key: the key itself.
        ends_at: seconds since 1970.
    """
    resource = quote_plus(audience)
    signed = f"{resource}\n{ends_at}".encode()
    signature = base64.b64encode(hmac.digest(key.encode(), signed, hashlib.sha256))
    return (
        f"SharedAccessSignature sr={resource}&sig={quote_plus(signature.decode())}"
        f"&se={ends_at}&skn={quote_plus(name)}"
    )


def token_from_file(path: Path) -> Callable[[float], str]:
    """Reads the token from its file each time, so that it can be renewed by writing the file.

    That is done in a thread. While the file does not answer, the token that was read last is put.
    What is returned raises OSError if the file cannot be read, or has not answered yet.
    """
    looker: Looker[str] = Looker(str(path))
    last: str | None = None

    def read() -> str:
        return read_regular(path).decode().strip()

    def make_token(now: float) -> str:
        nonlocal last
        found = looker.look(read)
        last = last if found is None else found
        if last is None:
            raise TimeoutError(errno.ETIMEDOUT, "its disk does not answer")
        return last

    return make_token


class Stage(enum.Enum):
    """See the head of this file."""

    WAITING = "waiting"
    OPENING = "opening"
    ASKING = "asking"
    HOLDING = "holding"
    FAILED = "failed"


@attrs.define(eq=False)
class CbsEngine(EngineAround):
    """Shows the face of an engine; puts tokens before and beside what it is used for.

    Attributes:
        claims: the claims to put.
        new_link: returns link ids that are not in use.
        wall: the time in seconds since 1970, for tokens.
    """

    claims: Claims
    new_link: Callable[[], LinkId]
    wall: Callable[[], float] = time.time
    stage: Stage = attrs.field(default=Stage.WAITING, init=False)
    _opened: ConnectionOpened | None = attrs.field(default=None, init=False)
    _sender: LinkId = attrs.field(default=LinkId(0), init=False)
    _receiver: LinkId = attrs.field(default=LinkId(0), init=False)
    _credit: int = attrs.field(default=0, init=False)
    _is_listening: bool = attrs.field(default=False, init=False)
    _due: float | None = attrs.field(default=None, init=False)
    _failure: Condition | None = attrs.field(default=None, init=False)
    _numbers: Any = attrs.field(factory=itertools.count, init=False)

    @property
    def deadline(self) -> float | None:
        """The inner engine's or ours, whichever comes first."""
        both = [each for each in (self.inner.deadline, self._due) if each is not None]
        return min(both, default=None)

    def receive_data(self, octets: bytes | memoryview, now: float) -> list[Event]:
        """Passes octets to the inner engine; events about tokens are handled here."""
        return self._sift(self.inner.receive_data(octets, now), now)

    def receive_eof(self, now: float) -> list[Event]:
        """Ends the inner stream."""
        return self._sift(self.inner.receive_eof(now), now)

    def data_to_send(self) -> memoryview:
        """Shows the inner engine's output."""
        return self.inner.data_to_send()

    def bytes_sent(self, count: int) -> None:
        """Confirms sent octets to the inner engine."""
        self.inner.bytes_sent(count)

    def handle_deadline(self, now: float) -> list[Event]:
        """Puts the next token, or gives up waiting for an answer."""
        if self._due is not None and now >= self._due:
            if self.stage is Stage.HOLDING:
                self._put(now)
            elif self.stage is not Stage.FAILED:
                self._fail(f"no answer from {NODE} within {PATIENCE_SECONDS:g} s")
        deadline = self.inner.deadline
        if deadline is None or now < deadline:
            return []
        return self._sift(self.inner.handle_deadline(now), now)

    # Sifting

    def _sift(self, events: list[Event], now: float) -> list[Event]:
        passed: list[Event] = []
        for event in events:
            match event:
                case ConnectionOpened():
                    self._opened = event
                    self._attach(now)
                case ConnectionClosed(condition=None) if self._failure is not None:
                    passed.append(ConnectionClosed(self._failure, by_peer=False))
                case ConnectionClosed():
                    passed.append(event)
                case _ if getattr(event, "link", None) in (self._sender, self._receiver):
                    passed += self._take(event, now)
                case _:
                    passed.append(event)
        return passed

    def _attach(self, now: float) -> None:
        self.stage = Stage.OPENING
        self._due = now + PATIENCE_SECONDS
        self._sender, self._receiver = self.new_link(), self.new_link()
        for link, role in ((self._sender, Role.SENDER), (self._receiver, Role.RECEIVER)):
            ours, theirs = f"{NODE}-{role.name.lower()}", NODE
            near, far = (ours, theirs) if role is Role.SENDER else (theirs, ours)
            self.inner.execute(
                AttachLink(
                    link=link,
                    name=LinkName(ours),
                    role=role,
                    source=Source(address=near),
                    target=Target(address=far),
                )
            )

    def _take(self, event: Event, now: float) -> list[Event]:
        match event:
            case LinkAttached(link=link) if link == self._receiver:
                self.inner.execute(GrantCredit(link, _CREDIT))
                self._is_listening = True
            case CreditGranted(credit=credit):
                self._credit = credit
            case DeliveriesReceived(deliveries=deliveries):
                numbers = [each.number for each in deliveries if not each.settled]
                if numbers:
                    self.inner.execute(
                        UpdateDeliveries(self._receiver, numbers, ACCEPTED, settled=True)
                    )
                self.inner.execute(GrantCredit(self._receiver, _CREDIT))
                return [event for each in deliveries for event in self._read_answer(each, now)]
            case DeliveriesUpdated(state=state, settled=settled, numbers=updated):
                if not settled:
                    self.inner.execute(UpdateDeliveries(self._sender, updated, None, settled=True))
                if state is not None and state != ACCEPTED:
                    self._fail(f"{NODE} does not accept the token's message")
            case LinkDetached(condition=condition):
                self._fail(f"{NODE} ends the link: {condition or NO_REASON}")
            case _:
                pass
        if self.stage is Stage.OPENING and self._is_listening and self._credit:
            self._put(now)
        return []

    # Tokens

    def _put(self, now: float) -> None:
        claims = self.claims
        if not self._credit:
            self.stage, self._due = Stage.OPENING, now + PATIENCE_SECONDS
            return
        try:
            token = claims.make_token(self.wall())
        except OSError as error:
            self._fail(f"the token cannot be read: {error.strerror}")
            return
        number = next(self._numbers)
        message = AnnotatedMessage(
            properties=Properties(message_id=str(number), to=NODE, reply_to=f"{NODE}-receiver"),
            application_properties={
                "operation": "put-token",
                "type": claims.kind,
                "name": claims.audience,
            },
            value=token,
        )
        tag = DeliveryTag(number.to_bytes(4, "big"))
        delivery = OutgoingDelivery(DeliveryNumber(number), tag, encode_message(message))
        self._credit -= 1
        self.inner.execute(SendDeliveries(self._sender, [delivery]))
        self.stage = Stage.ASKING
        self._due = now + PATIENCE_SECONDS

    def _read_answer(self, delivery: ReceivedDelivery, now: float) -> list[Event]:
        if self.stage is not Stage.ASKING:
            return []
        status, reason = _status_of(bytes(delivery.payload))
        if not 200 <= status < 300:
            self._fail(f"{NODE} refuses the token: {status} {reason}".rstrip())
            return []
        self.stage = Stage.HOLDING
        self._due = now + self.claims.renew_seconds
        opened, self._opened = self._opened, None
        return [] if opened is None else [opened]

    def _fail(self, reason: str) -> None:
        if self.stage is Stage.FAILED:
            return
        self.stage, self._due = Stage.FAILED, None
        self._failure = Condition(UNAUTHORIZED_ACCESS, reason)
        self.inner.execute(CloseConnection(self._failure))


def _status_of(payload: bytes) -> tuple[int, str]:
    """Returns the status of an answer; anything else counts as a refusal."""
    try:
        properties = decode_message(payload).application_properties
    except DecodeError:
        return 0, "the answer cannot be read"
    fields: Mapping[Any, Any] = dict(properties.items()) if properties is not None else {}
    status = fields.get("status-code", fields.get("statusCode", 0))
    reason = fields.get("status-description", fields.get("statusDescription")) or ""
    return (int(status) if isinstance(status, int) else 0), str(reason)
