"""Dials the places to which containers send single links (``amqp:link:redirect``, §2.8.18).

The core says which places it wants (``core/redirects``). Each is dialed once, as the container is
whose link was sent there: with its credentials, within its policy (``diversion``). What happens
when the place cannot be dialed, or is lost, the core decides. A place that no link needs any more
is left.
"""

from collections.abc import Mapping

import attrs
import trio

from router.core.core import Core
from router.core.settings import container_of, instance_of
from router.links.trail import RefusedDiversionError
from router.model.place import Alternative
from router.net.connector import CONNECT_SECONDS, Connector, Endpoint
from router.net.dataplane import DataPlane


@attrs.define(eq=False)
class Detours:
    """The connections to other places of containers.

    Attributes:
        core: wants them.
        plane: where they live.
        homes: the connectors of containers, by name.
        connectors: those to other places, by the name of the connection.
    """

    core: Core
    plane: DataPlane
    homes: Mapping[str, Connector]
    connectors: dict[str, Connector] = attrs.field(factory=dict, init=False)
    _endpoints: dict[str, Endpoint] = attrs.field(factory=dict, init=False)
    _is_stale: trio.Event = attrs.field(factory=trio.Event, init=False)

    async def run(self) -> None:
        """Keeps the connections that the core wants, until it is cancelled."""
        self.core.redirects.divert = self._divert
        self.core.redirects.awaken = self._awaken
        async with trio.open_nursery() as nursery:
            while True:
                await self._is_stale.wait()
                self._is_stale = trio.Event()
                self._follow(nursery)

    def close(self, container: str) -> None:
        """Leaves the other places of a container, which is dialed no longer, or differently."""
        for name, connector in self.connectors.items():
            if container_of(name) == container:
                connector.stop()

    def _follow(self, nursery: trio.Nursery) -> None:
        wanted = self.core.redirects.places
        for name, connector in self.connectors.items():
            if name not in wanted:
                connector.stop()
        self._endpoints = {name: self._endpoints[name] for name in wanted}
        for name in wanted.keys() - self.connectors.keys():
            home = self.homes.get(container_of(name))
            self.connectors[name] = connector = Connector(
                container=name,
                endpoints=[self._endpoints[name]],
                plane=self.plane,
                connect_seconds=CONNECT_SECONDS if home is None else home.connect_seconds,
            )
            nursery.start_soon(self._dial, name, connector)

    async def _dial(self, name: str, connector: Connector) -> None:
        await connector.run_once()
        del self.connectors[name]
        self.plane.carry_out(self.core.place_lost(name, self.plane.clock()))
        self._awaken()  # it may be wanted again since

    def _awaken(self) -> None:
        self._is_stale.set()

    def _divert(self, name: str, other: Alternative) -> str:
        """Names the connection to a place that is named on a connection, as ``Divert`` says."""
        connector = self.homes.get(name) or self.connectors.get(name)
        place = None if connector is None else connector.place
        if place is None or place.divert is None:
            raise RefusedDiversionError("other places are not dialed")
        following = place.divert(other)
        container = container_of(name)
        at = self.homes[container].place if container in self.homes else None
        if at is not None and (str(at), at.server_name) == (str(following), following.server_name):
            return container
        there = instance_of(container, str(following))
        if other.hostname is not None:
            there = f"{there}/{other.hostname}"
        self._endpoints[there] = following
        self._awaken()  # which forgets it if the core does not want it
        return there
