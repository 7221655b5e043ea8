"""The supervisor: many worker processes, one router.

Theory of operation. The supervisor's process owns everything that must outlive a worker: the
listening sockets, the signal handlers, the admin endpoint. It moves no messages, so it is always
responsive.

It starts the workers (``member``), hands each accepted socket to the least loaded of them, assigns
each configured container to exactly one (``placement``), and connects the workers to each other:
for each pair that is not connected it makes a socket pair and gives one end to each of the two,
which speak AMQP over it (``net.siblings``), and a second pair by which they hand clients to each
other (``net.handing``).

When a worker dies, its containers are assigned to others only after its process has been waited
for; otherwise two workers would dial the same container. The listeners stay open for its clients.

All workers prepare a configuration before any of them applies it, so a configuration that one
worker refuses is applied by none.
"""

import itertools
import secrets
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import structlog
import trio

from router.errors import RouterError
from router.net.handing import make_pair
from router.net.reception import source_of
from router.service import errands
from router.service.assembly import named_listeners
from router.service.channel import Channel, ChannelError
from router.service.config import RouterConfig
from router.service.control import Control
from router.service.errands import Duty
from router.service.kept_store import await_storing
from router.service.lives import NONE_WAIT, WaitingClients, WorkerLives
from router.service.member import Member, Parcel, Stage
from router.service.placement import MESH_HOME, find_homes, least_loaded, share_out
from router.service.proxy import RemoteControl
from router.service.transfer import Draft, pack

TICKET_OCTETS: Final = 32
"""Of the secret with which clients resume TLS sessions at any worker; new with each start."""

START_TRIES: Final = 5
"""Processes of a worker that may die before all serve; then the router fails, as any does that
cannot start: whoever started it, or whose place it was to take, knows what to do."""

OPEN_SECONDS: Final = 5.0
"""How long a new worker waits for its siblings' addresses before it is given sockets anyway."""

JOIN_SECONDS: Final = 2.0
"""How long two workers may take to connect before they are given another socket pair; twice as long
with each further one, as workers that are only slow would begin anew for ever."""

LONGEST_JOIN_SECONDS: Final = 60.0

EXIT_SECONDS: Final = 2.0
"""How long the process of a drained worker may take to end."""

_LOOK_SECONDS: Final = 0.05

_SIBLING_BUFFER_OCTETS: Final = 1 << 20


@attrs.frozen
class Join:
    """A socket pair that two workers were given.

    Attributes:
        until: when they are given another one, unless they are connected by then.
        seconds: they had for that.
    """

    until: float
    seconds: float


@attrs.frozen
class StartError(RouterError):
    """A worker did not come up."""

    worker: int
    reason: str

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.reason}"


@attrs.define(eq=False)
class Supervisor:
    """A crew of worker processes.

    Attributes:
        config: the configuration in force.
        is_json: whether the log consists of JSON lines.
    """

    config: RouterConfig
    is_json: bool
    _level: str = attrs.field(init=False)
    _members: list[Member] = attrs.field(init=False)
    _containers: dict[str, int] = attrs.field(factory=dict, init=False)
    _paused: set[str] = attrs.field(factory=set, init=False)
    _storing: set[str] = attrs.field(factory=set, init=False)
    _tickets: bytes = attrs.field(
        factory=lambda: secrets.token_bytes(TICKET_OCTETS), init=False, repr=False
    )
    _joins: dict[tuple[int, int], Join] = attrs.field(factory=dict, init=False)
    _prepared: tuple[RouterConfig, Draft] | None = attrs.field(default=None, init=False)
    _draft: Draft = attrs.field(init=False)
    _unplaced: list[Parcel] = attrs.field(factory=list, init=False)
    _unplaced_since: float = attrs.field(default=0.0, init=False)
    _is_warm: bool = attrs.field(default=False, init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    def __attrs_post_init__(self) -> None:
        self._level = self.config.router.log_level.value
        self._draft = pack(self.config)
        self._members = [self._make_member(n + 1) for n in range(self.config.router.workers)]

    def _make_member(self, number: int) -> Member:
        return Member(
            number=number,
            duty=lambda: self._duty(number),
            came_up=self._came_up,
            fared=self._open_up,
            went_down=self._went_down,
        )

    # The interface ``Crew``

    @property
    def express(self) -> str:
        """As ``Crew`` says."""
        return self._members[0].express

    @property
    def connected_containers(self) -> set[str]:
        """As ``Crew`` says."""
        return {name for member in self._up for name in member.report.containers}

    @property
    def connection_count(self) -> int:
        """As ``Crew`` says."""
        return sum(member.load.connections for member in self._up)

    @property
    def lives(self) -> Sequence[WorkerLives]:
        """As ``Crew`` says."""
        return tuple(member.lives for member in self._members)

    @property
    def waiting(self) -> WaitingClients:
        """As ``Crew`` says."""
        if not self._unplaced:
            return NONE_WAIT
        return WaitingClients(len(self._unplaced), trio.current_time() - self._unplaced_since)

    async def warm(self, nursery: trio.Nursery) -> None:
        """Starts the workers' processes, which prepare the configuration and wait."""
        if self._is_warm:
            return
        self._is_warm = True
        self._nursery = nursery
        numbers = [member.number for member in self._members]
        self._storing.update(await await_storing(self.config))
        self._containers = self._placed(numbers, {})
        for member in self._members:
            nursery.start_soon(member.run)

    async def start(self, nursery: trio.Nursery) -> None:
        """Starts the workers, as ``Crew`` says."""
        await self.warm(nursery)
        for member in self._members:
            member.may_begin.set()
        while not self._is_whole:
            for member in self._members:
                if member.stage is Stage.DOWN and member.error is not None:
                    raise StartError(member.number, member.error)
                if member.lives.ends >= START_TRIES:
                    reason = f"its process has ended {START_TRIES} times before all served"
                    raise StartError(member.number, f"{reason}: {member.lives.reason}")
            await trio.sleep(_LOOK_SECONDS / 5)
        nursery.start_soon(self._look_after_joints)

    @property
    def _is_whole(self) -> bool:
        """Whether all workers serve and know each other."""
        others = len(self._members) - 1
        return all(each.is_up and len(each.report.siblings) == others for each in self._members)

    def controls(self) -> Sequence[Control]:
        """As ``Crew`` says."""
        return [_Remembering(member.channel, member.number, self._paused) for member in self._up]

    async def wait_for_capacity(self) -> None:
        """Returns at once: each worker waits by itself."""

    def admit(self, sock: socket.socket, listener: str) -> None:
        """Hands a socket to the least loaded worker; without a worker the socket is queued.

        Neighbors of the mesh are for the worker that has it.
        """
        known = named_listeners(self.config).get(listener)
        is_mesh = known is not None and known.is_mesh
        chosen = least_loaded(
            member.load
            for member in self._up
            if member.is_open and (member.number == MESH_HOME or not is_mesh)
        )
        if chosen is None:
            if not self._unplaced:
                self._unplaced_since = trio.current_time()
            self._unplaced.append(Parcel({}, sock, listener))
            return
        source = _source(sock)
        others = [member for member in self._up if member.number != chosen]
        elsewhere = [
            sum(member.load.connections for member in others),
            sum(member.count_from(source) for member in others),
        ]
        parcel = Parcel({"listener": listener, "elsewhere": elsewhere}, sock, listener, source)
        self._members[chosen - 1].give(parcel)

    async def prepare(self, config: RouterConfig) -> None:
        """Prepares a configuration in every worker, as ``Crew`` says."""
        self._prepared = None
        draft = await trio.to_thread.run_sync(pack, config)
        await self._ask_all(lambda member: member.ask(errands.PREPARE, draft))
        self._prepared = config, draft

    async def apply(self) -> dict[str, int]:
        """Applies the prepared configuration, as ``Crew`` says."""
        prepared, self._prepared = self._prepared, None
        assert prepared is not None, "prepare comes first"
        self.config, self._draft = prepared
        self._paused &= {route.name for route in self.config.routes}
        for member in self._members:
            if member.stage is Stage.STARTING:
                member.kill()  # it would serve the configuration of its start
        kept: Counter[str] = Counter()

        async def apply(member: Member) -> None:
            found = await member.ask(errands.APPLY)
            kept.update(found)

        await self._ask_all(apply)
        self._share_out()
        return dict(kept)

    async def drain(self) -> bool:
        """Drains all workers, as ``Crew`` says."""
        self._return_unplaced()
        results: list[bool] = []

        async def drain(member: Member) -> None:
            try:
                results.append(await member.ask(errands.DRAIN))
            except ChannelError:
                results.append(False)  # the worker died before it was drained
            with trio.move_on_after(EXIT_SECONDS):
                await member.dismiss()

        async with trio.open_nursery() as nursery:
            for member in self._members:
                member.is_retired = True
                if member.is_up:
                    nursery.start_soon(drain, member)
                else:
                    member.kill()
        return all(results)

    async def set_log_level(self, level: str) -> None:
        """As ``Crew`` says."""
        self._level = level
        await self._ask_all(lambda member: member.ask(errands.SET_LOG_LEVEL, level))

    # Workers come and go

    @property
    def _up(self) -> list[Member]:
        return [member for member in self._members if member.is_up]

    def _duty(self, number: int) -> Duty:
        return Duty(
            number=number,
            workers=len(self._members),
            draft=self._draft,
            containers=self._containers_of(number),
            paused=tuple(sorted(self._paused)),
            is_json=self.is_json,
            log_level=self._level,
            tickets=self._tickets,
        )

    def _containers_of(self, number: int) -> tuple[str, ...]:
        return tuple(sorted(name for name, owner in self._containers.items() if owner == number))

    def _came_up(self, member: Member) -> None:
        self._share_out()
        self._join_up()
        self._open_up(member)
        self._nursery.start_soon(self._open_late, member, member.channel)

    async def _open_late(self, member: Member, channel: Channel) -> None:
        """Opens a worker to sockets when it has waited long enough for its siblings."""
        await trio.sleep(OPEN_SECONDS)
        if member.channel is channel:
            self._open_up(member, is_late=True)

    def _open_up(self, member: Member, *, is_late: bool = False) -> None:
        """Opens a worker to sockets once it knows the addresses that the others know."""
        others = {each.number for each in self._up} - {member.number}
        if (
            not member.is_up
            or member.is_open
            or not (is_late or others <= {*member.report.siblings})
        ):
            return
        member.is_open = True
        waiting, self._unplaced = self._unplaced, []
        for parcel in waiting:
            assert parcel.listener is not None, "only accepted sockets wait"
            self.admit(parcel.sock, parcel.listener)

    def _went_down(self, member: Member, parcels: list[Parcel]) -> None:
        self._joins = {
            pair: join for pair, join in self._joins.items() if member.number not in pair
        }
        for parcel in parcels:
            if parcel.listener is None:
                parcel.sock.close()
            else:
                self.admit(parcel.sock, parcel.listener)
        if not member.is_retired:
            self._share_out()
        for other in self._up:
            self._open_up(other)  # the other worker may have waited for this one

    def _return_unplaced(self) -> None:
        for parcel in self._unplaced:
            parcel.sock.close()
        self._unplaced.clear()

    def _share_out(self) -> None:
        """Reassigns containers whose worker is gone, and informs the workers concerned."""
        claimants = [member.number for member in self._members if member.has_claim]
        if not claimants:
            return
        before = self._containers
        self._containers = self._placed(claimants, before)
        for member in self._up:
            owned = self._containers_of(member.number)
            if owned != tuple(sorted(name for name, o in before.items() if o == member.number)):
                self._nursery.start_soon(self._tell, member, owned)

    def _placed(self, workers: Sequence[int], before: Mapping[str, int]) -> dict[str, int]:
        config = self.config
        homes = find_homes(config, len(self._members))
        routes = (route for route in config.routes if route.store is not None)
        self._storing.update(end.container for route in routes for end in route.endpoints)
        return share_out(
            config.containers, config.routes, workers, before, homes, storing=self._storing
        )

    async def _tell(self, member: Member, owned: tuple[str, ...]) -> None:
        try:
            await member.ask(errands.OWN, owned)
        except ChannelError:
            return  # the worker is gone, and its containers are reassigned

    async def _ask_all(self, question: Callable[[Member], Any]) -> None:
        """Asks all workers at once; workers that die meanwhile are ignored.

        Raises:
            RouterError: the first refusal.
        """
        refusals: list[RouterError] = []

        async def ask(member: Member) -> None:
            try:
                await question(member)
            except ChannelError:
                return
            except RouterError as error:
                refusals.append(error)

        async with trio.open_nursery() as nursery:
            for member in self._up:
                nursery.start_soon(ask, member)
        if refusals:
            raise refusals[0]

    # Connections between workers

    def _join_up(self) -> None:
        """Connects every pair of living workers that is not connected."""
        now = trio.current_time()
        for one, other in itertools.combinations(self._up, 2):
            pair = (one.number, other.number)
            is_joined = other.number in one.report.siblings and one.number in other.report.siblings
            if is_joined:
                self._joins.pop(pair, None)
                continue
            last = self._joins.get(pair)
            if last is not None and now < last.until:
                continue
            seconds = JOIN_SECONDS if last is None else min(2 * last.seconds, LONGEST_JOIN_SECONDS)
            self._joins[pair] = Join(now + seconds, seconds)
            ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
            for end in ends:
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
                    end.setsockopt(socket.SOL_SOCKET, option, _SIBLING_BUFFER_OCTETS)
            one.give(Parcel({"sibling": other.number, "serves": True}, ends[0]))
            other.give(Parcel({"sibling": one.number, "serves": False}, ends[1]))
            hands = make_pair()
            one.give(Parcel({"handing": other.number}, hands[0]))
            other.give(Parcel({"handing": one.number}, hands[1]))

    async def _look_after_joints(self) -> None:
        while True:
            await trio.sleep(JOIN_SECONDS / 2)
            self._join_up()


def _source(sock: socket.socket) -> str | None:
    """Returns the IP address of a peer; None: it has none, or is gone."""
    try:
        return source_of(sock)
    except OSError:
        return None


@attrs.define(eq=False)
class _Remembering(RemoteControl):
    """Remembers which routes are paused, for workers that come up later."""

    paused: set[str]

    async def pause(self, route: str) -> None:
        await RemoteControl.pause(self, route)
        self.paused.add(route)

    async def resume(self, route: str) -> None:
        await RemoteControl.resume(self, route)
        self.paused.discard(route)
