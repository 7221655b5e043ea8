"""A sender and a receiver, to watch their address go on the express lane and come off it."""

from router.model.terminus import SenderSettleMode
from router.routes.route import Route
from tests.support.exchange import Exchange, Receiver, Sender, message


class Meeting:
    """A sender and a receiver at one address, and messages between them."""

    def __init__(self, mode: str, *routes: Route, credit: int = 100) -> None:
        self.exchange = Exchange(mode, *routes)
        self.receiver = self.attach_receiver(credit)
        self.sender = self.attach_sender()
        self.sent = 0

    def attach_receiver(
        self, credit: int, mode: SenderSettleMode = SenderSettleMode.MIXED
    ) -> Receiver:
        receiver = self.exchange.attach_receiver(self.exchange.connect(), "here", mode=mode)
        self.exchange.settle_down()
        receiver.grant(credit)
        self.exchange.settle_down()
        return receiver

    def attach_sender(self) -> Sender:
        sender = self.exchange.attach_sender(self.exchange.connect(), "here")
        self.exchange.settle_down()
        return sender

    def send(self, count: int = 1, *, size: int = 8, ttl: int = 0, settled: bool = False) -> None:
        """Sends accepted messages only, unless the numbers run into others."""
        payloads = [message(97 * (self.sent + each), size, ttl=ttl) for each in range(count)]
        self.sent += count
        self.sender.send(payloads, settled)
        self.exchange.settle_down()

    def accept(self) -> None:
        self.receiver.answer(1 << 30, True)
        self.exchange.settle_down()

    def settle_down(self) -> None:
        self.exchange.settle_down()

    def is_on_lane(self) -> bool:
        nodes = self.exchange.core._registry.nodes.values()
        return any(node.is_express for node in nodes)

    def promote(self) -> None:
        """Lets enough happen for the address to go on the lane."""
        self.send()
        self.accept()
        self.send()
        assert self.is_on_lane()
        self.accept()
