"""The ttl of transfers that wait for a receiver: it counts, and what is left of it goes on."""

import pytest

from router.model.commands import AttachLink, GrantCredit
from router.model.events import DeliveriesReceived, LinkAttached
from router.model.terminus import Role
from router.routes.route import Route
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.framing import COMMAND, assembly
from tests.support.peer_0_10 import Transfer, server
from tests.support.worker_0_10 import Client, Worker

ORDERS = Route(address="orders")
EXPLICIT, NONE = 0, 1


def post(
    client: Client, body: bytes, *, ttl: int | None = None, mode: int | None = EXPLICIT
) -> None:
    told = r.DeliveryProperties(routing_key="orders", ttl=ttl)
    client.transfer(body, told, command=r.MessageTransfer("", mode, 0))


def wait(client: Client, seconds: float) -> None:
    """Lets time pass; the client's engine is woken when it wants to be."""
    client.now += seconds
    due = client.engine.deadline
    if due is not None and due <= client.now:
        client.take(client.engine.handle_deadline(client.now))


def completed(client: Client) -> list[tuple[int, int]]:
    return [each for told in client.said(r.SessionCompleted) for each in told.commands or ()]


def received_by(worker: Worker) -> list[tuple[bytes, int | None]]:
    """Bodies and ttls of what a new subscriber gets."""
    client = worker.connect()
    client.subscribe("orders")
    found = []
    for each in client.said(Transfer):
        _, told = messages.routing_of(each.header)
        found.append((each.body, told.ttl))
    return found


@pytest.mark.parametrize("mode", [EXPLICIT, NONE, None])
def test_what_waits_for_a_receiver_longer_than_its_ttl_is_not_delivered(mode: int | None) -> None:
    worker = Worker(ORDERS)
    client = worker.connect()
    post(client, b"short", ttl=100, mode=EXPLICIT if mode == NONE else mode)
    post(client, b"lasting", mode=mode)
    wait(client, 0.2)
    assert [body for body, _ in received_by(worker)] == [b"lasting"]


def test_its_sender_hears_that_it_was_released_as_soon_as_it_ends() -> None:
    worker = Worker(ORDERS)
    client = worker.connect()
    post(client, b"short", ttl=100)
    client.read()
    wait(client, 0.05)
    assert client.said(r.MessageRelease) == []
    assert client.engine.deadline == pytest.approx(1.1)
    wait(client, 0.05)
    told = [each for _, each in client.read()]
    assert r.MessageRelease(((0, 0),), set_redelivered=True) in told
    assert r.SessionCompleted(((0, 0),)) in told
    assert worker.octets == 0


def test_a_sender_that_does_not_say_how_to_answer_hears_that_it_is_complete() -> None:
    client = Worker(ORDERS).connect()
    post(client, b"short", ttl=100, mode=None)
    client.read()
    wait(client, 0.2)
    assert completed(client) == [(0, 0)]


def test_what_goes_on_in_time_has_the_ttl_that_is_left() -> None:
    worker = Worker(ORDERS)
    client = worker.connect()
    post(client, b"short", ttl=1000)
    wait(client, 0.6)
    assert received_by(worker) == [(b"short", 400)]


def test_what_does_not_wait_has_the_ttl_that_it_came_with() -> None:
    worker = Worker(ORDERS)
    client, reader = worker.connect(), worker.connect()
    reader.subscribe("orders")
    post(client, b"short", ttl=1000)
    (transfer,) = reader.said(Transfer)
    assert messages.routing_of(transfer.header)[1].ttl == 1000


def test_a_ttl_of_nothing_reaches_a_receiver_that_is_ready_and_waits_for_none() -> None:
    worker = Worker(ORDERS)
    client, reader = worker.connect(), worker.connect()
    post(client, b"at once", ttl=0)
    wait(client, 0)
    reader.subscribe("orders")
    assert reader.got() == []
    post(client, b"now", ttl=0)
    assert [body for body, _ in reader.got()] == [b"now"]


def test_nothing_ends_before_the_core_has_said_whether_a_route_takes_it() -> None:
    peer = server(credit=0)
    peer.attach()
    told = r.DeliveryProperties(routing_key="orders", ttl=100)
    head = encode_command(r.MessageTransfer("", EXPLICIT, 0))
    content = (messages.write_header(told, None), b"short")
    events = peer.engine.receive_data(assembly(COMMAND, 1, head, 65535, content), 0.0)
    peer.now = 5.0
    peer.engine.handle_deadline(peer.now)
    assert peer.said(r.MessageRelease) == []
    (link,) = [each for each in events if isinstance(each, LinkAttached)]
    peer.engine.execute(
        AttachLink(
            link=link.link,
            name=link.name,
            role=Role.RECEIVER,
            source=link.source,
            target=link.target,
        )
    )
    peer.engine.execute(GrantCredit(link.link, 10))
    more = peer.engine.handle_deadline(peer.now)
    assert not [each for each in more if isinstance(each, DeliveriesReceived)]
    assert peer.said(r.MessageRelease) == [r.MessageRelease(((0, 0),), set_redelivered=True)]


def test_what_is_given_back_does_not_live_longer_than_its_ttl() -> None:
    worker = Worker(ORDERS)
    client, reader = worker.connect(), worker.connect()
    post(client, b"short", ttl=1000, mode=None)
    reader.subscribe("orders")
    assert reader.got() == [(b"short", False)]
    wait(client, 2)
    reader.command(r.MessageStop("orders"), r.MessageRelease(((0, 0),)))
    reader.lose()
    wait(client, 0)
    assert received_by(worker) == []


def test_in_a_transaction_it_counts_from_the_commit() -> None:
    worker = Worker(ORDERS)
    client = worker.connect()
    client.command(r.TxSelect())
    post(client, b"short", ttl=1000)
    wait(client, 2)
    client.command(r.TxCommit())
    wait(client, 0.4)
    assert received_by(worker) == [(b"short", 600)]


def test_a_commit_fails_of_which_something_has_ended() -> None:
    client = Worker(ORDERS).connect()
    client.command(r.TxSelect())
    post(client, b"short", ttl=1000)
    client.command(r.TxCommit())
    client.read()
    wait(client, 2)
    (fault,) = client.said(r.ExecutionException)
    assert fault.error_code == 406


def test_it_counts_while_the_session_is_without_a_channel() -> None:
    worker = Worker(ORDERS)
    client = worker.connect()
    client.control(r.SessionDetach(b"s1"))
    client.attach(b"kept", timeout=600)
    post(client, b"short", ttl=1000)
    post(client, b"lasting", ttl=10_000)
    client.control(r.SessionDetach(b"kept"))
    client.now += 2
    client.control(r.SessionAttach(b"kept"))
    client.control(r.SessionExpected(None))
    wait(client, 0)
    assert client.said(r.MessageRelease) == [r.MessageRelease(((0, 0),), set_redelivered=True)]
    assert received_by(worker) == [(b"lasting", 8000)]


def test_clocks_of_two_workers_are_reckoned_with() -> None:
    worker = Worker(ORDERS)
    client = worker.connect()
    post(client, b"short", ttl=1000)
    session = client.engine.sessions[1]
    session.shift(-50.0)  # type: ignore[attr-defined]
    client.now -= 50.0
    wait(client, 0.6)
    assert received_by(worker) == [(b"short", 400)]


BRIEF = Route(address="orders", ttl_seconds=1)
"""A route with an upper limit of its own."""


@pytest.mark.parametrize("ttl", [None, 60_000])
def test_no_transfer_waits_for_longer_than_its_route_says(ttl: int | None) -> None:
    worker = Worker(BRIEF)
    client = worker.connect()
    post(client, b"first", ttl=ttl)
    wait(client, 0.6)
    post(client, b"second", ttl=ttl)
    wait(client, 0.5)
    assert client.said(r.MessageRelease) == [r.MessageRelease(((0, 0),), set_redelivered=True)]
    [(body, left)] = received_by(worker)
    assert body == b"second"
    assert left == pytest.approx(500, abs=10)


def test_what_nobody_waits_for_ends_as_its_route_says() -> None:
    worker = Worker(BRIEF)
    client = worker.connect()
    post(client, b"first", mode=NONE)
    wait(client, 1.1)
    assert received_by(worker) == []


def test_what_is_given_back_does_not_live_longer_than_its_route_says() -> None:
    worker = Worker(BRIEF)
    client, reader = worker.connect(), worker.connect()
    post(client, b"short", mode=None)
    reader.subscribe("orders")
    assert reader.got() == [(b"short", False)]
    wait(client, 2)
    reader.command(r.MessageStop("orders"), r.MessageRelease(((0, 0),)))
    reader.lose()
    wait(client, 0)
    assert received_by(worker) == []
