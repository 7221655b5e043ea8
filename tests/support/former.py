"""The peers of the recorded journal, who carry on with a router of today.

When it was recorded the router had been killed with three deliveries open: the receiver had
accepted K1 and its sender had heard it, K2 was sent and not answered, K3 was not sent.
"""

import json
from pathlib import Path
from typing import Any

from router.model.identity import DeliveryTag
from router.model.outcome import ACCEPTED, DeliveryState
from router.model.terminus import (
    ALL_OUTCOMES,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.wire.v1_0.performatives import Attach, Disposition, Transfer
from tests.support.framed import Framed
from tests.support.recorded import restore

COMPACTION = "  compaction: {directory: ./ledger, every_seconds: 1h}\n"
"""What the version before had in its file, too; it needs the extra ``spark``."""

FILE = f"""
router:
  id: under-test
  workers: 1
  admin: off
  state: ./state
  log_format: json
{COMPACTION}\
listeners: [{{bind: "127.0.0.1:0"}}]
routes: [{{address: orders, guarantee: exactly-once, unroutable: hold}}]
"""

KEPT: dict[str, Any] = {"expiry_policy": ExpiryPolicy.NEVER}
BODY = b"\x00\x53\x75\xa0\x01"
Map = dict[DeliveryTag, DeliveryState | None]


def restored(folder: Path) -> list[DeliveryTag]:
    """Brings the state directory back; gives the tags that the receiver has."""
    restore("journal", folder)
    (folder / "state").chmod(0o700)
    return [
        DeliveryTag(bytes.fromhex(tag)) for tag in json.loads((folder / "tags.json").read_text())
    ]


def sender(unsettled: Map) -> Attach:
    return Attach(
        name="out",
        handle=0,
        role=Role.SENDER,
        source=Source(address="here", outcomes=ALL_OUTCOMES),
        target=Target(address="orders", **KEPT),
        snd_settle_mode=SenderSettleMode.UNSETTLED,
        rcv_settle_mode=ReceiverSettleMode.SECOND,
        unsettled=unsettled,  # type: ignore[arg-type]  # a tag is bytes there
        initial_delivery_count=3,
    )


def receiver(unsettled: Map) -> Attach:
    return Attach(
        name="in",
        handle=0,
        role=Role.RECEIVER,
        source=Source(address="orders", outcomes=ALL_OUTCOMES, **KEPT),
        target=Target(address="there"),
        rcv_settle_mode=ReceiverSettleMode.SECOND,
        unsettled=unsettled,  # type: ignore[arg-type]  # a tag is bytes there
    )


async def carry_on(port: int, tags: list[DeliveryTag]) -> None:
    """Both peers resume their links, as §2.6.13 and §3.4.6 have it, and settle everything."""
    first, second = tags
    k1, k2, k3 = (DeliveryTag(b"K%d" % number) for number in (1, 2, 3))
    source, sink = await Framed.dial(port, "app"), await Framed.dial(port, "shop")
    await source.send(sender({k1: ACCEPTED, k2: None, k3: None}))
    answer = await source.expect_attach()
    assert answer.unsettled is not None
    assert answer.unsettled.keys() == {k1, k2, k3}
    assert answer.unsettled[k1] == ACCEPTED
    await sink.send(receiver({first: ACCEPTED, second: None}))
    attach = await sink.expect_attach()
    assert attach.unsettled is not None
    assert attach.unsettled.keys() == {first, second}
    await source.expect_credit()
    await source.transfer(k1, b"", resume=True, settled=True, state=ACCEPTED)
    await source.transfer(k2, BODY + b"2", resume=True)
    await source.transfer(k3, BODY + b"3", resume=True)
    await sink.flow(link_credit=10, delivery_count=attach.initial_delivery_count)
    seen: dict[bytes, tuple[Transfer, bytes]] = {}
    for _ in range(3):
        transfer, payload = await sink.expect_transfer()
        assert transfer.delivery_tag is not None
        seen[transfer.delivery_tag] = transfer, payload
        if transfer.delivery_tag != first:
            number = transfer.delivery_id or 0
            await sink.send(Disposition(Role.RECEIVER, number, state=ACCEPTED))
    third = (seen.keys() - {first, second}).pop()
    assert [bool(seen[tag][0].resume) for tag in (first, second, third)] == [True, True, False]
    assert seen[third][1] == BODY + b"3"
    answered = 0
    while answered < 2:
        told = await source.expect(Disposition, lambda each: each.state == ACCEPTED)
        answered += (told.last or told.first) - told.first + 1
        await source.send(Disposition(Role.SENDER, told.first, told.last, settled=True))
    settled = 0
    while settled < 2:
        done = await sink.expect(Disposition, lambda each: bool(each.settled))
        settled += (done.last or done.first) - done.first + 1
    await source.read_for(0.2)
    for peer in (source, sink):  # a router that drains waits for who does not answer its close
        await peer.lose()
