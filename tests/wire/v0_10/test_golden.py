"""Conversations composed from the documents, octet by octet.

The frame header is that of Qpid's programs (``framing`` draws it): flags, segment type, size,
track, channel. Class and code numbers, packing and field order are those of amqp.0-10.xml.
"""

import pytest

from router.model.capabilities import Protocol
from router.model.commands import SendDeliveries, UpdateDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    DeliveriesUpdated,
    LinkAttached,
)
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.outcome import ACCEPTED
from router.model.terminus import Role
from router.wire.v0_10.client import ClientEngine
from router.wire.v0_10.message import make_content
from router.wire.v0_10.server import ServerEngine
from tests.support.peer_0_10 import Peer, settings


def octets(text: str) -> bytes:
    """Reads octets in hexadecimal; what stands behind # explains them."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


HEADER = b"AMQP\x01\x01\x00\x0a"

START_OK = octets("""
    0f 00 0027 00 00 0000 00000000      # control, channel 0, 39 octets
    01 02 0e00                          # connection.start-ok: mechanism, response, locale
    09 414e4f4e594d4f5553               # ANONYMOUS
    00000003 616263                     # abc
    05 656e5f5553                       # en_US
    """)
TUNE_OK = octets("""
    0f 00 0014 00 00 0000 00000000
    01 06 0500                          # connection.tune-ok: channel-max, heartbeat
    00ff 0000
    """)
OPEN = octets("""
    0f 00 0012 00 00 0000 00000000
    01 07 0100                          # connection.open: virtual-host
    01 2f                               # /
    """)
ATTACH = octets("""
    0f 00 0014 00 00 0001 00000000      # channel 1
    02 01 0100                          # session.attach: name
    0002 7331                           # s1
    0f 00 001c 00 00 0001 00000000
    02 07 0300                          # session.command-point: command-id, command-offset
    00000000 0000000000000000
    """)
TRANSFER = octets("""
    0b 01 0014 00 01 0001 00000000      # first segment, first and last frame; command; track 1
    04 01 01 00 0600                    # message.transfer, no sync: accept-mode, acquire-mode
    00 00
    03 02 001b 00 01 0001 00000000      # header segment
    0000000b 04 01 0002                 # delivery-properties, 11 octets: routing-key
    06 6f7264657273                     # orders
    07 03 0011 00 01 0001 00000000      # last segment: body
    68656c6c6f                          # hello
    """)
ACCEPT = octets("""
    0f 00 001c 00 00 0001 00000000
    02 07 0300 00000000 0000000000000000    # command-point 0
    0f 01 001c 00 01 0001 00000000
    04 02 01 00 0100                        # message.accept: transfers
    0008 00000000 00000000                  # 0 to 0
    0f 00 001a 00 00 0001 00000000
    02 0a 0100                              # session.completed: commands
    0008 00000000 00000000
    """)


def test_a_client_logs_in_and_transfers_and_is_answered() -> None:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(HEADER)
    shown = bytes(peer.engine.data_to_send())
    assert shown.startswith(HEADER + octets("0f 00"))
    assert octets("0101 0700") in shown  # connection.start, all three fields
    assert octets("00000016 95 00000002 0009414e4f4e594d4f5553 0005504c41494e")[4:] in shown
    peer.engine.bytes_sent(len(shown))
    peer.feed(START_OK)
    tune = bytes(peer.engine.data_to_send())
    assert tune == octets("""
        0f 00 0018 00 00 0000 00000000
        01 05 0f00                      # connection.tune, all four fields
        0100 ffff 0000 003c
        """)
    peer.engine.bytes_sent(len(tune))
    peer.feed(TUNE_OK + OPEN)
    assert bytes(peer.engine.data_to_send()) == octets("""
        0f 00 0010 00 00 0000 00000000
        01 08 0000                      # connection.open-ok
        """)
    peer.engine.bytes_sent(16)
    (opened,) = peer.of(ConnectionOpened)
    assert opened.hostname == "/"
    peer.feed(ATTACH)
    attached = bytes(peer.engine.data_to_send())
    assert attached == octets("""
        0f 00 0014 00 00 0001 00000000
        02 02 0100 0002 7331            # session.attached
        """)
    peer.engine.bytes_sent(len(attached))
    peer.feed(TRANSFER)
    (run,) = peer.of(DeliveriesReceived)
    (delivery,) = run.deliveries
    assert delivery.payload == octets("00 0000000f 0000000b 04010002 066f7264657273") + b"hello"
    assert bytes(peer.engine.data_to_send()) == b""
    peer.engine.execute(UpdateDeliveries(run.link, [delivery.number], ACCEPTED, True))
    assert bytes(peer.engine.data_to_send()) == ACCEPT


SUBSCRIBE = octets("""
    0f 01 001d 00 01 0001 00000000
    04 07 01 00 0f00                    # message.subscribe: queue, destination, both modes
    06 6f7264657273 01 64 00 00         # orders, d, explicit, pre-acquired
    0f 01 0015 00 01 0001 00000000
    04 0a 01 00 0300 01 64 01           # message.flow: d, byte, no value: infinite
    0f 01 0019 00 01 0001 00000000
    04 0a 01 00 0700 01 64 00 00000002  # message.flow: d, message, 2
    """)


def test_a_client_subscribes_and_accepts() -> None:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(HEADER + START_OK + TUNE_OK + OPEN + ATTACH)
    peer.feed(SUBSCRIBE)
    peer.read()
    (link,) = [event.link for event in peer.of(LinkAttached) if event.role is Role.SENDER]
    payload = make_content(b"", octets("0000000b 04010002 066f7264657273"), b"hi")
    out = OutgoingDelivery(DeliveryNumber(9), DeliveryTag(b"t"), payload, Protocol.AMQP_0_10)
    peer.engine.execute(SendDeliveries(link, [out]))
    assert bytes(peer.engine.data_to_send()) == octets("""
        0f 00 001c 00 00 0001 00000000
        02 07 0300 00000000 0000000000000000
        0b 01 0016 00 01 0001 00000000
        04 01 01 00 0700 01 64 00 00        # message.transfer: d, explicit, pre-acquired
        03 02 001b 00 01 0001 00000000
        0000000b 04010002 066f7264657273
        07 03 000e 00 01 0001 00000000
        6869
        """)
    peer.feed(
        octets("""
        0f 01 001c 00 01 0001 00000000
        04 02 01 01 0100 0008 00000000 00000000     # message.accept, sync
        """)
    )
    (told,) = peer.of(DeliveriesUpdated)
    assert (told.numbers, told.state, told.settled) == ([9], ACCEPTED, True)


CONSUME = octets("""
    0f 01 001c 00 01 0001 00000000
    0a 03 01 00 0300                    # stream.consume: queue, consumer-tag
    06 6f7264657273 02 6331             # orders, c1
    """)
PACKET = octets("""
    0b 01 0019 00 01 0001 00000000
    0a 06 01 00 0600                    # stream.publish: routing-key, mandatory
    06 6f7264657273
    03 02 0018 00 01 0001 00000000
    00000008 0a 01 0900                 # stream-properties: content-type, priority
    02 612f 07
    07 03 000e 00 01 0001 00000000
    6869
    """)


def test_a_client_publishes_and_consumes_a_stream() -> None:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(HEADER + START_OK + TUNE_OK + OPEN + ATTACH)
    peer.engine.bytes_sent(len(peer.engine.data_to_send()))
    peer.feed(CONSUME)
    (link,) = [event.link for event in peer.of(LinkAttached) if event.role is Role.SENDER]
    shown = bytes(peer.engine.data_to_send())
    assert shown == octets("""
        0f 00 001c 00 00 0001 00000000
        02 07 0300 00000000 0000000000000000
        0f 01 0015 00 01 0001 00000000
        0a 04 01 00 0100 02 6331        # stream.consume-ok: consumer-tag
        0f 00 001a 00 00 0001 00000000
        02 0a 0100 0008 00000000 00000000
        """)
    peer.engine.bytes_sent(len(shown))
    peer.feed(PACKET)
    (run,) = peer.of(DeliveriesReceived)
    (received,) = run.deliveries
    assert received.payload == octets("""
        00 0000001b
        0000000c 04 01 0802 07 06 6f7264657273      # delivery-properties: priority, routing-key
        00000007 04 03 1000 02 612f                 # message-properties: content-type
        6869
        """)
    payload = received.payload
    out = OutgoingDelivery(DeliveryNumber(9), DeliveryTag(b"t"), payload, Protocol.AMQP_0_10)
    peer.engine.execute(SendDeliveries(link, [out]))
    assert bytes(peer.engine.data_to_send()) == octets("""
        0b 01 0024 00 01 0001 00000000
        0a 08 01 00 0b00                # stream.deliver: consumer-tag, delivery-tag, queue
        02 6331 0000000000000001 06 6f7264657273
        03 02 0018 00 01 0001 00000000
        00000008 0a 01 0900 02 612f 07
        07 03 000e 00 01 0001 00000000
        6869
        """)


UPLOAD = octets("""
    0f 01 001c 00 01 0001 00000000
    09 06 01 00 0300 01 66 0000000000000002     # file.open: identifier f, content-size 2
    0b 01 0012 00 01 0001 00000000
    09 08 01 00 0000                            # file.stage
    03 02 001b 00 01 0001 00000000
    0000000b 09 01 4100                         # file-properties: content-type, filename
    02 612f 03 612e62
    07 03 000e 00 01 0001 00000000
    6869
    0f 01 001b 00 01 0001 00000000
    09 09 01 00 1200                            # file.publish: routing-key, identifier
    06 6f7264657273 01 66
    """)


def test_a_client_uploads_a_file() -> None:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(HEADER + START_OK + TUNE_OK + OPEN + ATTACH)
    peer.engine.bytes_sent(len(peer.engine.data_to_send()))
    peer.feed(UPLOAD)
    (run,) = peer.of(DeliveriesReceived)
    (received,) = run.deliveries
    assert received.payload == octets("""
        00 00000032
        0000000b 04 01 0002 06 6f7264657273                     # routing-key
        0000001f 04 03 1001 02 612f                             # content-type, headers
        00000014 00000001 09 2466696c656e616d65 95 0003 612e62  # $filename, a str16
        6869
        """)
    assert bytes(peer.engine.data_to_send()) == octets("""
        0f 00 001c 00 00 0001 00000000
        02 07 0300 00000000 0000000000000000
        0f 01 001a 00 01 0001 00000000
        09 07 01 00 0100 0000000000000000                       # file.open-ok: nothing is staged
        0f 00 001a 00 00 0001 00000000
        02 0a 0100 0008 00000000 00000001
        """)


REFUSED = [(6, code) for code in range(1, 11)]  # dtx.select to set-timeout


@pytest.mark.parametrize(("class_code", "code"), REFUSED)
def test_dtx_is_refused_with_their_numbers(class_code: int, code: int) -> None:
    peer = Peer(ServerEngine(settings(is_server=True)))
    peer.feed(HEADER + START_OK + TUNE_OK + OPEN + ATTACH)
    peer.engine.bytes_sent(len(peer.engine.data_to_send()))
    index = f"{class_code:02x} {code:02x}"
    peer.feed(octets(f"0f 01 0012 00 01 0001 00000000  {index} 01 00 0000"))
    shown = bytes(peer.engine.data_to_send())
    assert octets(f"03 03 01 00 2f00 021c 00000000 {index}") in shown  # exception 540, command 0
    assert shown.endswith(octets("0f 00 0014 00 00 0001 00000000 02 03 0100 0002 7331"))  # detach


def test_a_client_of_another_version_gets_the_header() -> None:
    engine = ServerEngine(settings(is_server=True))
    (closed,) = engine.receive_data(b"AMQP\x01\x01\x00\x09", 0.0)
    assert isinstance(closed, ConnectionClosed)
    assert bytes(engine.data_to_send()) == HEADER


def test_our_client_opens() -> None:
    engine = ClientEngine(settings(is_server=False))
    assert bytes(engine.data_to_send()) == HEADER
    engine.bytes_sent(8)
    engine.receive_data(HEADER, 0.0)
    engine.receive_data(
        octets("""
        0f 00 0034 00 00 0000 00000000
        01 01 0600                                              # start: mechanisms, locales
        00000010 95 00000001 0009 414e4f4e594d4f5553
        0000000c 95 00000001 0005 656e5f5553
        """),
        0.0,
    )
    assert b"ANONYMOUS" in bytes(engine.data_to_send())
    engine.bytes_sent(len(engine.data_to_send()))
    engine.receive_data(
        octets("0f 00 0018 00 00 0000 00000000 01 05 0f00 0063 1000 0000 000a"), 0.0
    )
    assert bytes(engine.data_to_send()) == octets("""
        0f 00 0016 00 00 0000 00000000
        01 06 0700 0063 1000 000a                   # tune-ok: 99, 4096, 10 s
        0f 00 0011 00 00 0000 00000000
        01 07 0500 00                               # open: virtual-host "", insist
        """)
