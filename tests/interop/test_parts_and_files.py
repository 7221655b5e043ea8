"""What comes in parts or pieces, through the core: streams of AMQP/Fast and 0-10, files of both.

The core is real, and so is the engine of the protocol; who speaks AMQP 1.0 is scripted.
"""

import attrs
import pytest

from router.model.capabilities import Capabilities, Credit, Protocol
from router.model.commands import Command
from router.model.condition import RESOURCE_DELETED
from router.model.events import ConnectionOpened, Event
from router.model.identity import ConnectionId, ContainerId
from router.model.outcome import ACCEPTED, RELEASED
from router.wire.engine import EngineSettings
from router.wire.fast import commands as c
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.framing import FRAMING, FrameType
from router.wire.v0_9r1.translate import to_sections
from router.wire.v0_10 import optional as streams
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command, encode_struct
from router.wire.v0_10.framing import COMMAND, assembly
from router.wire.v0_10.server import ServerEngine
from router.wire.v0_10.translate import to_sections as message_sections
from router.wire.v0_10.types import with_size
from router.wire.v1_0.sections import AnnotatedMessage, decode_message, encode_message
from tests.support import basic_peer, fast_peer, peer_0_10
from tests.support.basic_peer import Content
from tests.support.draft_peer import DraftClientPeer, hexed
from tests.support.fast_peer import Client, message
from tests.support.play import Peer, Play, ReceiverEnd


class Streamer(peer_0_10.Peer):
    """A client of 0-10 that leaves the answers to the core."""

    def __init__(self, play: Play) -> None:
        settings = EngineSettings(is_server=True, container="router", link_ids=play.link_ids)
        super().__init__(ServerEngine(settings))
        self.open()
        self.attach()
        self.events.clear()

    def take(self, events: list[Event]) -> list[Event]:
        self.events += events
        return events

    def take_events(self) -> list[Event]:
        events, self.events = self.events, []
        return events


@attrs.define(eq=False, kw_only=True)
class Plugged(Peer):
    """A client whose engine is plugged into the core that the play is about."""

    far: basic_peer.Peer | fast_peer.Peer | Streamer

    def execute(self, command: Command) -> None:
        self.far.engine.execute(command)

    def talk(self) -> None:
        """Hands what the engine has told to the core, until it tells nothing more."""
        engine, far = self.far.engine, self.far
        while True:
            while engine.deadline is not None and engine.deadline <= far.now:
                far.events += engine.handle_deadline(far.now)
            events = far.take_events()
            if not events:
                return
            self.happens(*events)


def plug(
    play: Play, far: basic_peer.Peer | fast_peer.Peer | Streamer, protocol: Protocol
) -> Plugged:
    """Plugs an engine in whose connection is open."""
    peer = Plugged(play, ConnectionId(len(play.peers) + 1), "client", far=far)
    play.peers[peer.id] = peer
    can = Capabilities(protocol=protocol, learns_outcomes=False, credit=Credit.PREFETCH)
    peer.happens(ConnectionOpened(container=ContainerId("client"), hostname=None, capabilities=can))
    return peer


def sections(*data: bytes) -> bytes:
    return encode_message(AnnotatedMessage(data=list(data)))


# --- AMQP/Fast ------------------------------------------------------------------------------------


def streaming() -> tuple[Peer, ReceiverEnd, Client, Plugged]:
    """A client that streams to a service; gives service, what it receives, client and its peer."""
    play = Play("camera")
    service = play.connect("service")
    calls = service.attach_receiver("camera", credit=10)
    settings = EngineSettings(is_server=True, container="router", link_ids=play.link_ids)
    client = Client(server=settings).open().channel()
    peer = plug(play, client, Protocol.AMQP_FAST)
    client.handle(1, "camera", service=3)
    peer.talk()
    octets = message(b"") + b"hello"
    client.send((c.HandleSend(1, 0, len(octets), partial=True, streaming=True), octets))
    peer.talk()
    return service, calls, client, peer


def test_a_service_answers_a_stream_with_a_stream_part_by_part() -> None:
    service, calls, client, peer = streaming()
    call = decode_message(calls.bodies[0])
    assert call.data == [b"hello"]
    assert calls.partial is not None
    assert call.properties is not None
    answer = service.attach_sender(call.properties.reply_to)
    payload = sections(b"onetwo")
    (number,) = answer.send(payload[:-3], more=True)
    peer.talk()
    ((first, fragment),) = client.fragments()
    assert isinstance(first, c.HandleNotify)
    assert first.streaming
    assert fragment.endswith(b"one")
    answer.go_on(payload[-3:], more=False)
    peer.talk()
    second, close = client.read()
    assert isinstance(second, tuple)
    assert second[1] == b"two"
    assert close == c.HandleClose(1, 200)
    assert answer.outcome(number) == (ACCEPTED, True)
    assert calls.partial is None  # what the client streamed has ended, too


@pytest.mark.parametrize("who", ["service", "client"])
def test_a_stream_of_answers_that_breaks_off_is_over_for_both(who: str) -> None:
    service, calls, client, peer = streaming()
    call = decode_message(calls.bodies[0])
    assert call.properties is not None
    answer = service.attach_sender(call.properties.reply_to)
    answer.send(sections(b"onetwo")[:-3], more=True)
    peer.talk()
    client.read()
    if who == "service":
        answer.abort()
        peer.talk()
        assert client.read() == [c.HandleClose(1, 541, "the stream was aborted")]
        assert calls.aborted == [0]  # its handle was closed with a fault
    else:
        client.send(c.HandleClose(1, 200))
        peer.talk()
        assert client.read() == [c.HandleClose(1, 200)]
        assert calls.partial is None
        assert answer.detached is not None  # the node of the answers is gone with the handle
        assert answer.detached.condition is not None
        assert answer.detached.condition.name == RESOURCE_DELETED
    assert not client.engine.outlets


def test_an_answer_on_a_handle_that_does_not_stream_comes_whole() -> None:
    play = Play("clock")
    service = play.connect("service")
    service.attach_receiver("clock", credit=10)
    settings = EngineSettings(is_server=True, container="router", link_ids=play.link_ids)
    client = Client(server=settings).open().channel()
    peer = plug(play, client, Protocol.AMQP_FAST)
    client.handle(1, "clock", service=3)
    client.post(b"?")
    peer.talk()
    (address,) = {each.address for each in client.engine.outlets.values()}
    answer = service.attach_sender(address)
    payload = sections(b"onetwo")
    answer.send(payload[:-3], more=True)
    peer.talk()
    assert client.read() == []
    answer.go_on(payload[-3:], more=False)
    peer.talk()
    ((notify, fragment),) = client.fragments()
    assert isinstance(notify, c.HandleNotify)
    assert not notify.streaming
    assert fragment.endswith(b"onetwo")


# --- draft 0.9r1 ----------------------------------------------------------------------------------


def draft(play: Play) -> tuple[DraftClientPeer, Plugged]:
    client = DraftClientPeer(link_ids=play.link_ids).open(1)
    return client, plug(play, client, Protocol.AMQP_0_9R1)


def test_a_message_of_1_0_reaches_a_consumer_of_files_and_its_ack_comes_back() -> None:
    play = Play("orders")
    client, peer = draft(play)
    client.send(1, o.FileConsume(queue="orders"))
    peer.talk()
    sender = play.connect("s").attach_sender()
    payload = sections(b"onetwo")
    (number,) = sender.send(payload[:-3], more=True)
    sender.go_on(payload[-3:], more=False)
    peer.talk()
    _, opened = client.methods()
    assert isinstance(opened, o.FileOpen)
    assert opened.content_size == 6
    client.send(1, o.FileOpenOk(3))  # three octets are there from an earlier attempt
    staged, delivered = client.methods()
    assert isinstance(staged, Content)
    assert staged.body == b"two"
    assert isinstance(delivered, o.FileDeliver)
    assert delivered.routing_key == "orders"
    client.send(1, o.FileAck(1))
    peer.talk()
    assert sender.outcome(number) == (ACCEPTED, True)


def test_a_file_of_a_transaction_reaches_a_receiver_whose_outcome_is_the_commits() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5)
    client, peer = draft(play)
    client.send(1, m.TxSelect(), o.FileOpen("one", 3))
    client.feed(
        FRAMING.frame(FrameType.METHOD, 1, hexed("0007 0007"))
        + FRAMING.frame(FrameType.HEADER, 1, hexed("0007 0000 0000000000000003 0000"))
        + FRAMING.frame(FrameType.BODY, 1, b"abc")
    )
    client.send(1, o.FilePublish(routing_key="orders", identifier="one"), m.TxCommit())
    peer.talk()
    assert to_sections(receiver.bodies[0]).data == [b"abc"]
    assert m.TxCommitOk() not in client.methods()
    receiver.accept()
    peer.talk()
    assert client.methods() == [m.TxCommitOk()]


def test_packets_of_a_stream_go_to_consumers_of_streams() -> None:
    play = Play("orders")
    client, peer = draft(play)
    client.send(1, o.StreamConsume(queue="orders"))
    peer.talk()
    client.send(1, o.StreamPublish(routing_key="orders"))
    client.feed(
        FRAMING.frame(FrameType.HEADER, 1, hexed("0008 0000 0000000000000003 0000"))
        + FRAMING.frame(FrameType.BODY, 1, b"abc")
    )
    peer.talk()
    packet = client.methods()[-1]
    assert isinstance(packet, Content)
    assert packet.method == o.StreamDeliver(delivery_tag=1, queue="orders")
    assert packet.body == b"abc"


# --- 0-10 -----------------------------------------------------------------------------------------


def test_a_message_of_1_0_is_a_packet_for_a_consumer_of_a_stream_and_accepted() -> None:
    play = Play("orders")
    client = Streamer(play)
    peer = plug(play, client, Protocol.AMQP_0_10)
    client.command(streams.StreamConsume(queue="orders", consumer_tag="c"))
    peer.talk()
    sender = play.connect("s").attach_sender()
    (number,) = sender.send(sections(b"one"))
    peer.talk()
    (packet,) = client.said(peer_0_10.Transfer)
    assert packet.command == streams.StreamDeliver(consumer_tag="c", delivery_tag=1, queue="orders")
    assert packet.body == b"one"
    assert sender.outcome(number) == (ACCEPTED, True)


def test_a_packet_reaches_a_receiver_and_comes_back_if_it_must_not_be_lost() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5)
    client = Streamer(play)
    peer = plug(play, client, Protocol.AMQP_0_10)
    told = streams.StreamProperties(content_type="audio/ogg", priority=3)
    client.packet(streams.StreamPublish(routing_key="orders", mandatory=True), b"abc", told)
    peer.talk()
    message = message_sections(receiver.bodies[0])
    assert message.data == [b"abc"]
    assert message.properties is not None
    assert message.properties.content_type == "audio/ogg"
    assert message.header is not None
    assert message.header.priority == 3
    receiver.update(receiver.last.number, state=RELEASED)
    peer.talk()
    (back,) = client.said(peer_0_10.Transfer)
    assert isinstance(back.command, streams.StreamReturn)
    assert (back.command.reply_code, back.body) == (streams.NO_CONSUMERS, b"abc")


def stage_octets(told: streams.FileProperties, body: bytes) -> bytes:
    header = with_size(encode_struct(told), 4)
    return assembly(COMMAND, 1, encode_command(streams.FileStage()), 65535, (header, body))


def test_a_message_of_1_0_is_a_file_for_a_consumer_of_files_and_its_ack_comes_back() -> None:
    play = Play("orders")
    client = Streamer(play)
    peer = plug(play, client, Protocol.AMQP_0_10)
    client.command(streams.FileConsume(queue="orders", consumer_tag="c"))
    peer.talk()
    sender = play.connect("s").attach_sender()
    (number,) = sender.send(sections(b"onetwo"))
    peer.talk()
    (opened,) = client.said(streams.FileOpen)
    assert opened.content_size == 6
    client.command(streams.FileOpenOk(3))  # three octets are there from an earlier attempt
    peer.talk()
    staged, delivered = (each for _, each in client.read() if not is_control(each))
    assert (staged.command, staged.body) == (streams.FileStage(), b"two")
    assert delivered.identifier == opened.identifier
    client.command(streams.FileAck(delivered.delivery_tag))
    peer.talk()
    assert sender.outcome(number) == (ACCEPTED, True)


def is_control(said: object) -> bool:
    return isinstance(said, r.SessionCompleted | r.SessionCommandPoint)


def test_a_file_that_was_uploaded_reaches_a_receiver_whose_outcome_completes_it() -> None:
    play = Play("orders")
    receiver = play.connect("r").attach_receiver(credit=5)
    client = Streamer(play)
    peer = plug(play, client, Protocol.AMQP_0_10)
    client.command(streams.FileOpen("f", 3))
    client.feed(stage_octets(streams.FileProperties(message_id="m", filename="a.txt"), b"abc"))
    client.command(streams.FilePublish(routing_key="orders", identifier="f"))
    peer.talk()
    message = message_sections(receiver.bodies[0])
    assert message.data == [b"abc"]
    assert message.properties is not None
    assert message.properties.message_id == "m"
    assert message.application_properties == {"$filename": "a.txt"}
    client.read()
    receiver.accept()
    peer.talk()
    assert client.said(r.SessionCompleted) == [r.SessionCompleted(((0, 2),))]
