"""Conversations of the draft, octet for octet, as the document draws them.

Sections are those of the document: "Protocol Header", "General Frame Format", "Method Frames",
"AMQP Data Fields", "Content Framing", "Structured Content", "Heartbeat Frames". Numbers of methods
are the published ones, those of connection and channel inferred (``router.wire.v0_9r1.methods``).
"""

from router.model.capabilities import Protocol
from router.model.commands import GrantCredit, SendDeliveries, UpdateDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
)
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import ACCEPTED
from router.model.terminus import Role, Target
from router.wire.engine import Engine, EngineSettings
from router.wire.v0_9r1.engine import make_engine
from tests.support.accepting import accepting
from tests.support.basic_peer import attach
from tests.support.draft_peer import hexed

PROTOCOL = Protocol.AMQP_0_9R1


class Talk:
    """One engine; octets in and out are compared whole."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.events: list[Event] = []

    def hears(self, *lines: str) -> None:
        self.events += self.engine.receive_data(hexed(*lines), 0.0)

    def says(self, *lines: str) -> None:
        said = b""
        while view := self.engine.data_to_send():
            said += view
            self.engine.bytes_sent(len(view))
        assert said.hex(" ") == hexed(*lines).hex(" ")

    def attached(self) -> LinkAttached:
        return [each for each in self.events if isinstance(each, LinkAttached)][-1]

    def accepts(self, event: LinkAttached) -> None:
        self.engine.execute(accepting(event))
        self.events += self.engine.handle_deadline(0.0)


OPEN = (
    # connection.start-ok: client-properties mechanism response locale
    "01 00 0000 0000001c  0001 0002  00000000 05'PLAIN' 00000004 00'a'00'b' 05'en_US'  ce",
    # connection.tune-ok: channel-max frame-max heartbeat
    "01 00 0000 0000000c  0001 0006  0005 00001000 0000  ce",
    # connection.open: virtual-host capabilities insist
    "01 00 0000 00000008  0001 0007  01'/' 00 00  ce",
)


def test_a_client_publishes_in_a_transaction() -> None:
    talk = Talk(make_engine(EngineSettings(is_server=True, container="r", idle_seconds=0.0)))
    # "Protocol Header": the client sends it, the server answers with connection.start.
    talk.hears("'AMQP' 01 01 09 01")
    talk.says(
        "01 00 0000 00000055",  # METHOD, cycle, channel, size ("General Frame Format")
        "0001 0001  09 01",  # connection.start ("Method Frames"), version 9.1
        "00000026  07'product' 'S' 00000006 'router'  0c'cluster_name' 'S' 00000001 'r'",
        "00000018 'ANONYMOUS PLAIN AMQPLAIN'  00000005 'en_US'",
        "ce",  # frame-end
    )
    talk.hears(*OPEN)
    assert isinstance(talk.events[0], ConnectionOpened)
    talk.says(
        # connection.tune: channel-max 2047, frame-max 65536, no heartbeat
        "01 00 0000 0000000c  0001 0005  07ff 00010000 0000  ce",
        # connection.open-ok: known-hosts
        "01 00 0000 00000005  0001 0008  00  ce",
    )
    talk.hears(
        "01 00 0001 00000005  0002 0001  00  ce",  # channel.open, nothing out of band
        "01 00 0001 00000004  0009 0001  ce",  # tx.select
        # basic.publish: ticket exchange routing-key, and mandatory in the lowest bit
        "01 00 0001 0000000a  0006 0005  0000 00 01'q' 01  ce",
        # header: class weight body-size flags, "bit 15 indicates the first property"
        "02 00 0001 00000014  0006 0000 0000000000000005 9000  04'text' 02  ce",
        "03 00 0001 00000003  'hel' ce",  # "split into as many frames as needed"
        "03 00 0001 00000002  'lo' ce",
        "01 00 0001 00000004  0009 0003  ce",  # tx.commit
    )
    talk.says(
        "01 00 0001 00000004  0002 0002  ce",  # channel.open-ok
        "01 00 0001 00000004  0009 0002  ce",  # tx.select-ok
    )
    link = talk.attached()
    assert link.target == Target(address="q")
    talk.accepts(link)
    talk.engine.execute(GrantCredit(link.link, 1))
    talk.events += talk.engine.handle_deadline(0.0)
    received = talk.events[-1]
    assert isinstance(received, DeliveriesReceived)
    assert received.deliveries[0].payload.endswith(b"hello")
    talk.says()
    talk.engine.execute(
        UpdateDeliveries(link.link, [received.deliveries[0].number], ACCEPTED, True)
    )
    talk.says("01 00 0001 00000004  0009 0004  ce")  # tx.commit-ok
    talk.hears("01 00 0000 0000000b  0001 000a  00c8 00 0000 0000  ce")  # connection.close, 200
    talk.says("01 00 0000 00000004  0001 000b  ce")  # connection.close-ok
    assert isinstance(talk.events[-1], ConnectionClosed)


def test_a_client_consumes_and_acknowledges() -> None:
    talk = Talk(make_engine(EngineSettings(is_server=True, container="r", idle_seconds=0.0)))
    talk.hears("'AMQP' 01 01 09 01", *OPEN)
    while view := talk.engine.data_to_send():
        talk.engine.bytes_sent(len(view))
    talk.hears(
        "01 00 0003 00000005  0002 0001  00  ce",  # channel.open
        # basic.consume: ticket queue prefetch-size prefetch-count bits
        "01 00 0003 0000000f  0006 0001  0000 01'q' 00000000 000a 00  ce",
    )
    link = talk.attached()
    assert link.role is Role.SENDER
    talk.accepts(link)
    talk.says(
        "01 00 0003 00000004  0002 0002  ce",  # channel.open-ok
        "01 00 0003 00000006  0006 0002  0001  ce",  # basic.consume-ok, tag 1
    )
    payload = b"\x00\x00\x00" + hexed("003c 0000 0000000000000002 0800 05") + b"hi"
    talk.engine.execute(
        SendDeliveries(
            link.link,
            [OutgoingDelivery(DeliveryNumber(9), DeliveryTag(b"t"), payload, PROTOCOL)],
        )
    )
    talk.says(
        # basic.deliver: consumer-tag delivery-tag redelivered exchange routing-key
        "01 00 0003 00000012  0006 0007  0001 0000000000000001 00 00 01'q'  ce",
        "02 00 0003 0000000f  0006 0000 0000000000000002 0800 05  ce",  # priority 5
        "03 00 0003 00000002  'hi' ce",
    )
    # basic.ack: delivery-tag multiple
    talk.hears("01 00 0003 0000000d  0006 000b  0000000000000001 00  ce")
    told = talk.events[-1]
    assert isinstance(told, DeliveriesUpdated)
    assert list(told.numbers) == [9]
    assert told.state == ACCEPTED


def test_we_dial_a_broker_and_publish_to_its_queue() -> None:
    talk = Talk(make_engine(EngineSettings(is_server=False, container="r", idle_seconds=60.0)))
    talk.says("'AMQP' 01 01 09 01")
    # connection.start: version 9.1, no properties, PLAIN
    talk.hears("01 00 0000 00000018  0001 0001  09 01 00000000 00000005 'PLAIN' 00000001 'e'  ce")
    talk.says(
        "01 00 0000 0000004d  0001 0002",  # connection.start-ok
        "00000029  07'product' 'S' 00000006 'router'  0f'connection_name' 'S' 00000001 'r'",
        "05'PLAIN'  0000000c 00'guest'00'guest'  05'en_US'  ce",
    )
    talk.hears("01 00 0000 0000000c  0001 0005  0008 00002000 003c  ce")  # connection.tune
    talk.says(
        "01 00 0000 0000000c  0001 0006  0008 00002000 001e  ce",  # tune-ok, the lower heartbeat
        "01 00 0000 00000008  0001 0007  01'/' 00 00  ce",  # connection.open
    )
    talk.hears("01 00 0000 00000005  0001 0008  00  ce")  # connection.open-ok
    talk.engine.execute(attach(Role.SENDER, "q"))
    talk.says("01 00 0001 00000005  0002 0001  00  ce")  # channel.open
    talk.hears("01 00 0001 00000004  0002 0002  ce")  # channel.open-ok
    # queue.declare: ticket queue, passive in the lowest bit, no arguments
    talk.says("01 00 0001 0000000d  0005 0001  0000 01'q' 01 00000000  ce")
    # queue.declare-ok: queue message-count consumer-count
    talk.hears("01 00 0001 0000000e  0005 0002  01'q' 00000000 00000000  ce")
    talk.says("01 00 0001 00000004  0009 0001  ce")  # tx.select
    talk.hears("01 00 0001 00000004  0009 0002  ce")  # tx.select-ok
    payload = b"\x00\x00\x00" + hexed("003c 0000 0000000000000002 0000") + b"hi"
    talk.engine.execute(
        SendDeliveries(
            attach(Role.SENDER, "q").link,
            [OutgoingDelivery(DeliveryNumber(5), DeliveryTag(b"t"), payload, PROTOCOL)],
        )
    )
    talk.says(
        "01 00 0001 0000000a  0006 0005  0000 00 01'q' 01  ce",  # basic.publish, mandatory
        "02 00 0001 0000000e  0006 0000 0000000000000002 0000  ce",
        "03 00 0001 00000002  'hi' ce",
        "01 00 0001 00000004  0009 0003  ce",  # tx.commit
    )
    talk.hears("01 00 0001 00000004  0009 0004  ce")  # tx.commit-ok
    told = talk.events[-1]
    assert isinstance(told, DeliveriesUpdated)
    assert (list(told.numbers), told.state) == ([5], ACCEPTED)


def test_both_sides_beat_with_the_whole_frame() -> None:
    # "Heartbeat Frames": channel zero; the grammar lacks the frame's size.
    talk = Talk(make_engine(EngineSettings(is_server=True, container="r", idle_seconds=60.0)))
    talk.hears("'AMQP' 01 01 09 01", OPEN[0])
    talk.hears("01 00 0000 0000000c  0001 0006  0005 00001000 000a  ce", OPEN[2])
    while view := talk.engine.data_to_send():
        talk.engine.bytes_sent(len(view))
    talk.engine.handle_deadline(5.0)
    talk.engine.handle_deadline(10.0)
    talk.says("08 00 0000 00000000 ce")
    talk.hears("08 00 0000 00000000 ce")
