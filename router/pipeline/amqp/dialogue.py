"""Runs a link machine in a thread of its own, for programs that do not run Trio."""

import itertools
import ssl
import threading
from collections.abc import Callable, Iterator

import attrs
import trio

from router import __version__
from router.cli.place import open_stream
from router.errors import RouterError
from router.model.capabilities import Protocol
from router.model.identity import LinkId
from router.net.client.conversation import Conversation, Dialing, LinkMachine
from router.pipeline.amqp.options import Options
from router.wire.engine import Engine, EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.protocols import PROTOCOLS, vhost_to_ask_for

_counter = itertools.count(1)
_END_SECONDS = 10.0


class PeerError(RouterError):
    """The peer cannot be reached, refuses the link, or cannot give the guarantee."""


@attrs.define(eq=False)
class Dialogue:
    """A conversation in a thread.

    Attributes:
        machine: the link machine that it runs.
        container: our container-id; the same to resume a link.
    """

    machine: LinkMachine
    options: Options
    container: str
    _error: str | None = attrs.field(default=None, init=False)
    _conversation: Conversation = attrs.field(init=False)
    _scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _token: trio.lowlevel.TrioToken | None = attrs.field(default=None, init=False)
    _is_running: threading.Event = attrs.field(factory=threading.Event, init=False)
    _thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        place, context = self.options.place, None
        if place.is_tls:
            ca = self.options.ca
            context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        self._conversation = Conversation(
            Dialing(
                dial=lambda: open_stream(place, context),
                make_engine=self._make_engine,
                patience_seconds=self.options.dial_seconds,
            ),
            self.machine,
        )
        name = f"amqp-{next(_counter)}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()
        self._is_running.wait()

    def check(self) -> None:
        """Raises ``PeerError`` if the conversation has failed."""
        failure = self.machine.failure
        if failure is not None:
            raise PeerError(f"{self.options.address}: {failure}")
        if self._error is not None:
            raise PeerError(f"{self.options.place.address}: {self._error}")

    def wake(self) -> None:
        """Makes the thread pull the machine's pending commands."""
        self._soon(self._conversation.wake)

    def leave(self) -> None:
        """Drops the connection; the link is suspended, to be resumed."""
        self._soon(self._scope.cancel)
        self._thread.join(_END_SECONDS)

    def end(self) -> None:
        """Ends the conversation and the link in an orderly way."""
        self._soon(self._conversation.finish)
        self._thread.join(_END_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether the conversation has ended."""
        return not self._thread.is_alive()

    def wait_end(self) -> None:
        """Waits until the machine is done.

        Raises:
            PeerError: the conversation failed.
        """
        self._thread.join()
        self.check()

    def _soon(self, call: Callable[[], None]) -> None:
        try:
            if self._token is not None:
                self._token.run_sync_soon(call)
        except trio.RunFinishedError:
            return

    def _run(self) -> None:
        trio.run(self._converse)

    async def _converse(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._is_running.set()
        try:
            with self._scope:
                await self._conversation.run()
        except Exception as error:
            # Caused by the peer or by the link's files: the thread must not end silently.
            cause = _innermost(error)
            self._error = str(cause)
            if not isinstance(cause, RouterError | OSError):
                raise

    def _make_engine(self, link_ids: Iterator[LinkId]) -> Engine:
        place = self.options.place
        protocol = Protocol.AMQP_1_0
        settings = EngineSettings(
            is_server=False,
            container=self.container,
            link_ids=link_ids,
            hostname=vhost_to_ask_for(protocol, place.vhost, place.hostname),
            sasl_client=lambda: MechanismClient(user=place.user, password=place.password),
            properties={"version": __version__},
        )
        return PROTOCOLS[protocol].make(settings, None)


def _innermost(error: BaseException) -> BaseException:
    """Returns the first exception of the groups that nurseries make."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
