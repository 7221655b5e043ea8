"""Endpoints of routes: ``container/address``, or a mapping with what a link asks for."""

from collections.abc import Collection

import attrs

from router.routes.route import Endpoint, LinkTerms
from router.service.config.amqp_values import AmqpMap, EncodedMap
from router.service.config.document import Entries, Node, Scalar
from router.service.config.kinds import Kind, ListOf, Reading, ScalarKind, Schema
from router.service.config.options import Placed, Section, option
from router.service.config.problems import ReportedError, UnfitError
from router.service.config.scalars import Text


@attrs.frozen
class EndpointText(ScalarKind[Endpoint]):
    """``container`` or ``container/address``; the address begins after the first ``/``."""

    def read(self, node: Node, at: str, reading: Reading) -> Endpoint:
        """Reads an endpoint; says where a wildcard may have been read as a comment."""
        if isinstance(node, Scalar) and node.is_cut and node.text.find("/") == len(node.text) - 1:
            raise UnfitError(
                "names no address after the '/'; one that begins with '#' wants quotes"
            )
        reading.doubt(node, at)
        return super().read(node, at, reading)

    def parse(self, text: str) -> Endpoint:
        """Cuts at the first ``/``."""
        container, slash, address = text.partition("/")
        if not container:
            raise UnfitError("names no container before the '/'")
        if slash and not address:
            raise UnfitError("names no address after the '/'; leave the '/' out for the same one")
        return Endpoint(container, address or None)

    def wanted(self) -> str:
        """The two forms."""
        return "container or container/address"


@attrs.frozen
class Symbolic(ScalarKind[str]):
    """A symbol of AMQP."""

    def parse(self, text: str) -> str:
        """Accepts text in ASCII."""
        if not text or not text.isascii():
            raise UnfitError("is no symbol: a symbol is text in ASCII")
        return text

    def wanted(self) -> str:
        """Describes a symbol."""
        return "a symbol (text in ASCII)"


@attrs.frozen(kw_only=True)
class EndpointEntry(Placed):
    """An endpoint with what is asked for when a link to it is attached."""

    container: str = option(Text(), help="name of the container")
    address: str | None = option(
        Text(),
        default=None,
        default_text="that of the route",
        help="address in the container; * and # in it take what they stand for in the route's",
    )
    filter: EncodedMap = option(
        AmqpMap(is_filter_set=True),
        factory=EncodedMap,
        default_text="none",
        help="filters of the source (§3.5.8), by name; {TYPE: VALUE} gives a value another type,"
        " {described: [DESCRIPTOR, VALUE]} another descriptor than the name. The link is given up,"
        " and tried again later, if the container does not apply them",
    )
    capabilities: tuple[str, ...] = option(
        ListOf(Symbolic(), "capability"),
        default=(),
        help="capabilities asked of the container's terminus, such as queue or topic",
    )
    link_name: str | None = option(
        Text(),
        default=None,
        default_text="one that names router, route and address",
        help="name of the link, where the container reads it; for one address only",
    )
    properties: EncodedMap = option(
        AmqpMap(),
        factory=EncodedMap,
        default_text="none",
        help="properties of the attach, by name, with values as in filter",
    )

    def as_endpoint(self) -> Endpoint:
        """Returns the endpoint as the rest of the program uses it."""
        terms = LinkTerms(
            filters=self.filter.octets,
            filter_names=self.filter.names,
            capabilities=self.capabilities,
            link_name=self.link_name,
            properties=self.properties.octets,
        )
        return Endpoint(self.container, self.address, terms, self.where.section)


@attrs.frozen
class EndpointKind(Kind[Endpoint]):
    """An endpoint as one text, or as a mapping."""

    kind: Section[EndpointEntry] = attrs.field(factory=lambda: Section(EndpointEntry))

    @property
    def keys(self) -> Collection[str]:  # type: ignore[override]
        """Those of the mapping."""
        return self.kind.keys

    def read(self, node: Node, at: str, reading: Reading) -> Endpoint:
        """Reads either form."""
        if not isinstance(node, Entries):
            return attrs.evolve(EndpointText().read(node, at, reading), position=node.position)
        before = len(reading.problems)
        entry = self.kind.read(node, at, reading)
        if len(reading.problems) > before:
            raise ReportedError("holds a value that cannot be read")
        return entry.as_endpoint()

    def schema(self) -> Schema:
        """Returns both forms."""
        return {"anyOf": [EndpointText().schema(), self.kind.schema()]}
