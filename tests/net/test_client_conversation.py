"""The client's conversation: many connections, in virtual time."""

import errno
import itertools
from collections.abc import Awaitable, Callable, Iterator

import attrs
import pytest
import trio
from trio.testing import MockClock, lockstep_stream_pair, memory_stream_pair

from router.model.condition import CONNECTION_FORCED, UNAUTHORIZED_ACCESS, Condition
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation, Dialing, UnreachableError
from router.net.client.message import numbered
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from tests.support.keeper import Keeper


def client_engine(link_ids: Iterator[LinkId]) -> Engine10:
    return Engine10(EngineSettings(is_server=False, container="client", link_ids=link_ids))


@attrs.define(eq=False)
class Far:
    """The other end: a keeper behind streams in memory.

    Attributes:
        up: whether dialing works.
        dials: when it was tried.
    """

    keeper: Keeper
    nursery: trio.Nursery
    up: bool = True
    dials: list[float] = attrs.field(factory=list)
    lost: list[str] = attrs.field(factory=list)
    engine: Engine10 | None = None
    stream: trio.abc.Stream | None = None

    async def dial(self) -> trio.abc.Stream:
        self.dials.append(trio.current_time())
        if not self.up:
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = memory_stream_pair()
        self.nursery.start_soon(self.serve, far)
        return near

    async def serve(self, stream: trio.abc.Stream) -> None:
        engine = Engine10(EngineSettings(is_server=True, container="keeper"))
        self.engine, self.stream = engine, stream
        try:
            while not engine.finished:
                octets = await stream.receive_some(65536)
                now = trio.current_time()
                events = (
                    engine.receive_data(bytes(octets), now) if octets else engine.receive_eof(now)
                )
                for command in self.keeper.handle(events):
                    engine.execute(command)
                await self.flush()
            await stream.aclose()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            engine.receive_eof(trio.current_time())
        self.keeper.lost()

    async def flush(self) -> None:
        assert self.engine is not None
        assert self.stream is not None
        while view := self.engine.data_to_send():
            await self.stream.send_all(view)
            self.engine.bytes_sent(len(view))

    def cut(self) -> None:
        stream = self.stream
        assert isinstance(stream, trio.StapledStream)
        stream.send_stream.close()
        stream.receive_stream.close()

    def dialing(self, patience_seconds: float = 60.0) -> Dialing:
        return Dialing(
            dial=self.dial,
            make_engine=client_engine,
            patience_seconds=patience_seconds,
            on_lost=self.lost.append,
        )


def sending(count: int, guarantee: Guarantee = Guarantee.EXACTLY_ONCE) -> SendingLink:
    return SendingLink(
        name=LinkName("link"), address="a", supply=numbered(b"m", count), guarantee=guarantee
    )


async def test_a_conversation_ends_when_the_machine_is_done(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    far = Far(Keeper(), nursery)
    machine = sending(100)
    await Conversation(far.dialing(), machine).run()
    assert machine.report.outcomes == {"accepted": 100}
    assert machine.report.connections == 1
    assert far.engine is not None
    assert far.engine.finished, "the connection was closed in good order"


async def test_all_places_are_dialed_before_a_pause(autojump_clock: MockClock) -> None:
    dialed: list[float] = []

    async def dial() -> trio.abc.Stream:
        dialed.append(trio.current_time())
        raise OSError(111, "Connection refused")

    dialing = Dialing(dial=dial, make_engine=client_engine, places=3, patience_seconds=2)
    with pytest.raises(UnreachableError):
        await Conversation(dialing, sending(1)).run()
    rounds = [dialed[first : first + 3] for first in range(0, len(dialed) - 3, 3)]
    assert len(rounds) > 3
    assert all(first == second == third for first, second, third in rounds)
    assert len({first for first, _, _ in rounds}) == len(rounds)


async def test_a_lost_connection_is_dialed_again_and_the_link_resumed(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    taken: list[bytes] = []

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        taken.append(delivery.payload)
        if len(taken) in (5, 15):
            nursery.start_soon(cut)
        return ACCEPTED

    async def cut() -> None:
        far.cut()

    machine = ReceivingLink(
        name=LinkName("link"),
        address="a",
        take=take,
        guarantee=Guarantee.EXACTLY_ONCE,
        window=3,
        count=30,
    )
    far = Far(Keeper(), nursery)
    far.keeper.waiting.extend(numbered(b"m", 30))
    await Conversation(far.dialing(), machine).run()
    assert sorted(taken) == sorted(numbered(b"m", 30))
    assert machine.report.connections == 3
    assert len(far.lost) == 2


async def test_dialing_goes_on_with_growing_pauses_until_patience_ends(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    far = Far(Keeper(), nursery, up=False)
    with pytest.raises(UnreachableError, match="Connection refused"):
        await Conversation(far.dialing(patience_seconds=30), sending(1)).run()
    assert far.dials[-1] - far.dials[0] == pytest.approx(30)
    pauses = [later - earlier for earlier, later in zip(far.dials, far.dials[1:], strict=False)]
    assert pauses[0] <= 0.1
    assert max(pauses) <= 5.0
    assert pauses[-2] >= 2.5


async def test_patience_begins_anew_with_every_connection_that_served(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    far = Far(Keeper(), nursery)
    machine = ReceivingLink(
        name=LinkName("link"),
        address="a",
        take=lambda delivery: ACCEPTED,
        guarantee=Guarantee.AT_LEAST_ONCE,
        count=3,
    )
    conversation = Conversation(far.dialing(patience_seconds=10), machine)
    nursery.start_soon(conversation.run)
    for _ in range(3):
        await trio.sleep(1)
        far.up = False
        far.cut()
        await trio.sleep(7)
        far.up = True
        far.keeper.waiting.extend(numbered(b"m", 1))
        await trio.sleep(6)
    assert machine.report.received == 3
    assert machine.report.connections == 4


async def test_a_refused_identity_is_not_tried_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    refusal = Condition(UNAUTHORIZED_ACCESS, "who are you?")
    far = Far(Keeper(), nursery)
    far.keeper.refuses_connection = refusal
    machine = sending(1)
    await Conversation(far.dialing(), machine).run()
    assert machine.failure == refusal
    assert len(far.dials) == 1


async def test_a_connection_that_is_forced_to_close_is_dialed_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    far = Far(Keeper(), nursery)
    far.keeper.refuses_connection = Condition(CONNECTION_FORCED, "maintenance")
    with pytest.raises(UnreachableError, match="maintenance"):
        await Conversation(far.dialing(patience_seconds=5), sending(1)).run()
    assert len(far.dials) > 3


async def test_finish_ends_a_conversation_in_good_order(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    far = Far(Keeper(), nursery)
    machine = ReceivingLink(
        name=LinkName("link"),
        address="a",
        take=lambda delivery: ACCEPTED,
        guarantee=Guarantee.AT_LEAST_ONCE,
    )
    conversation = Conversation(far.dialing(), machine)
    far.keeper.waiting.extend(numbered(b"m", 7))
    with trio.fail_after(10):
        async with trio.open_nursery() as inner:
            inner.start_soon(conversation.run)
            await trio.sleep(1)
            assert conversation.is_opened
            conversation.finish()
    assert machine.report.received == 7
    assert far.engine is not None
    assert far.engine.finished


async def test_finish_ends_a_conversation_that_has_no_connection(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    far = Far(Keeper(), nursery, up=False)
    conversation = Conversation(far.dialing(), sending(1))
    with trio.fail_after(5):
        async with trio.open_nursery() as inner:
            inner.start_soon(conversation.run)
            await trio.sleep(1)
            conversation.finish()


async def test_a_silent_peer_is_given_up_by_the_engines_clock(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    streams: list[trio.abc.Stream] = []

    async def dial() -> trio.abc.Stream:
        near, silent = memory_stream_pair()
        streams.append(silent)
        return near

    dialing = Dialing(dial=dial, make_engine=client_engine, patience_seconds=60)
    with pytest.raises(UnreachableError, match="the open did not come in time"):
        await Conversation(dialing, sending(1)).run()
    assert 3 <= len(streams) <= 5, "15 seconds each for an open that never comes"


async def mute() -> trio.abc.Stream:
    """Dials somebody who takes the connection and says nothing."""
    return memory_stream_pair()[0]


async def test_a_peer_that_never_opens_has_not_served_however_long_that_took(
    autojump_clock: MockClock,
) -> None:
    dialing = Dialing(dial=mute, make_engine=client_engine, patience_seconds=10)
    with trio.fail_after(60), pytest.raises(UnreachableError, match="10 s"):
        await Conversation(dialing, sending(1)).run()


@pytest.mark.parametrize("dial", [mute, trio.sleep_forever])
@pytest.mark.parametrize(("patience", "seconds"), [(0.0, 1.0), (2.0, 2.0), (20.0, 20.0)])
async def test_dialing_ends_with_the_patience_though_an_attempt_has_not_ended(
    autojump_clock: MockClock,
    dial: Callable[[], Awaitable[trio.abc.Stream]],
    patience: float,
    seconds: float,
) -> None:
    dialing = Dialing(dial=dial, make_engine=client_engine, patience_seconds=patience)
    began = trio.current_time()
    with pytest.raises(UnreachableError, match="no connection within"):
        await Conversation(dialing, sending(1)).run()
    assert trio.current_time() - began == pytest.approx(seconds, abs=1.0)


async def test_a_connection_that_does_not_come_about_is_an_attempt_that_failed(
    autojump_clock: MockClock,
) -> None:
    dialing = Dialing(dial=trio.sleep_forever, make_engine=client_engine, patience_seconds=10)
    with trio.fail_after(60), pytest.raises(UnreachableError, match="no connection within 10 s"):
        await Conversation(dialing, sending(1)).run()


async def test_the_reason_of_a_failed_attempt_outlives_one_that_time_cuts_off(
    autojump_clock: MockClock,
) -> None:
    attempts = itertools.count()

    async def dial() -> trio.abc.Stream:
        if not next(attempts):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "")
        return await mute()

    dialing = Dialing(dial=dial, make_engine=client_engine, patience_seconds=5)
    with trio.fail_after(60), pytest.raises(UnreachableError, match="Connection refused"):
        await Conversation(dialing, sending(1)).run()


async def test_finish_waits_for_no_open(autojump_clock: MockClock) -> None:
    conversation = Conversation(Dialing(dial=mute, make_engine=client_engine), sending(1))
    with trio.fail_after(5):
        async with trio.open_nursery() as inner:
            inner.start_soon(conversation.run)
            await trio.sleep(1)
            conversation.finish()


async def test_outcomes_are_heard_while_the_peer_takes_no_payload(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    keeper = Keeper(credit=5)
    supply = numbered(bytes(100_000), 5)
    machine = SendingLink(
        name=LinkName("link"), address="a", supply=supply, guarantee=Guarantee.AT_LEAST_ONCE
    )

    async def dial() -> trio.abc.Stream:
        near, far = lockstep_stream_pair()  # octets move only while somebody reads
        nursery.start_soon(serve, far)
        return near

    async def serve(stream: trio.abc.Stream) -> None:
        engine = Engine10(EngineSettings(is_server=True, container="keeper"))
        while not engine.finished:
            octets = await stream.receive_some(1000)
            events = engine.receive_data(bytes(octets), trio.current_time())
            for command in keeper.handle(events):
                engine.execute(command)
            while view := engine.data_to_send():
                await stream.send_all(view)
                engine.bytes_sent(len(view))
            while machine.report.settled < len(keeper.taken):
                await trio.sleep(0.1)

    with trio.fail_after(60):
        await Conversation(Dialing(dial=dial, make_engine=client_engine), machine).run()
    assert machine.report.outcomes == {"accepted": 5}
