"""Conversations of one link over any of the protocols, with a router on this machine."""

from collections.abc import Iterator

import trio

from router.model.capabilities import Protocol
from router.model.identity import LinkId
from router.net.client.conversation import Conversation, Dialing, LinkMachine
from router.wire.engine import Engine, EngineSettings
from router.wire.mechanisms import MechanismClient
from router.wire.protocols import PROTOCOLS, vhost_to_ask_for


def conversing(
    machine: LinkMachine,
    protocol: Protocol,
    port: int,
    container: str,
    *,
    patience_seconds: float = 60.0,
) -> Conversation:
    """Returns a conversation with 127.0.0.1:``port``, which has not begun.

    Args:
        machine: the link.
        protocol: of all its connections.
        port: to dial.
        container: who dials, on all connections.
        patience_seconds: how long it dials in vain before it gives up.
    """
    memory: dict[str, object] = {}

    def make_engine(link_ids: Iterator[LinkId]) -> Engine:
        settings = EngineSettings(
            memory=memory,
            is_server=False,
            container=container,
            link_ids=link_ids,
            hostname=vhost_to_ask_for(protocol, None, "localhost"),
            sasl_client=MechanismClient,
        )
        return PROTOCOLS[protocol].make(settings, None)

    async def dial() -> trio.abc.Stream:
        return await trio.open_tcp_stream("127.0.0.1", port)

    dialing = Dialing(dial=dial, make_engine=make_engine, patience_seconds=patience_seconds)
    return Conversation(dialing, machine)
