"""The options of ``format("amqp")``, named as users of Spark's Kafka source expect.

Spark gives their names in lower case.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from router.errors import RouterError
from router.pipeline.store import local_path
from router.routes.route import Guarantee

if TYPE_CHECKING:
    from router.cli.place import Place

_SCHEMES: Final = ("amqp://", "amqps://", "unix:")
_TRUE: Final = frozenset(("true", "yes", "1"))


class OptionError(RouterError):
    """An option is missing or invalid."""


@attrs.frozen(kw_only=True)
class Options:
    """The options of a query.

    Attributes:
        url: ``amqp.url``: of the peer.
        ca: ``amqp.ca``: file of authorities (PEM) to trust for amqps.
        address: to read from or write to.
        store: ``walDir`` as given: where unsettled deliveries are kept; executors must see it too.
        guarantee: ``deliveryGuarantee``: exactly-once or at-least-once.
        names_guarantee: the query names it; a browse that does not needs none.
        dedupe: ``dedupe``: ``message-id`` drops deliveries whose id has been seen before.
        most_rows: ``maxDeliveriesPerTrigger``.
        most_octets: ``maxBytesPerTrigger``.
        partitions: ``minPartitions``: number of tasks that read a batch; a stream, and a batch that
            consumes, have a link for each.
        idle_seconds: ``idleTimeoutMs``: silence after which an address counts as empty.
        dial_seconds: ``amqp.dialTimeoutMs``: how long the peer may be unreachable.
        link_seconds: ``amqp.linkTimeoutMs``: how long the peer is asked to keep the link.
        mode: of a batch read: ``browse`` releases everything, ``consume`` accepts it.
        loses: ``failOnDataLoss`` is false: continues when log and checkpoint do not match.
        resends: ``inDoubt`` is ``resend``: messages that may have arrived are sent again.
        query: ``queryName``.
    """

    url: str
    address: str
    ca: Path | None = None
    store: str | None = None
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    names_guarantee: bool = False
    dedupe: bool = False
    most_rows: int = 10_000
    most_octets: int = 64 << 20
    partitions: int = 1
    idle_seconds: float = 1.0
    dial_seconds: float = 60.0
    link_seconds: int = 86_400
    mode: str = "browse"
    loses: bool = False
    resends: bool = False
    query: str = ""

    @property
    def place(self) -> "Place":
        """The peer's place, parsed on use, because most of Spark's processes never dial.

        Raises:
            OptionError: ``amqp.url`` is not a valid URL.
        """
        from router.cli.place import place_of  # noqa: PLC0415  a second of CPU in each process
        from router.service.config.problems import UnfitError  # noqa: PLC0415

        try:
            return place_of(self.url)
        except UnfitError as error:
            raise OptionError(f"option amqp.url: it {error.reason}") from None

    @property
    def place_of_log(self) -> str:
        """``walDir``, as given: a path or a URL.

        Raises:
            OptionError: it was not given.
        """
        if self.store is None:
            raise OptionError("option walDir is missing: where unsettled deliveries are kept")
        return self.store

    @property
    def log(self) -> Path:
        """``walDir`` as a local directory.

        Raises:
            OptionError: it was not given, or is the URL of another file system.
        """
        path = local_path(self.place_of_log)
        if path is None:
            raise OptionError(
                f"option walDir: {self.store} is not a directory of this machine, which this needs;"
                " a stream by several links, and what writes, can have a URL there"
            )
        return path


KNOWN: Final = (
    "amqp.url", "amqp.ca", "amqp.dialTimeoutMs", "amqp.linkTimeoutMs", "address", "walDir",
    "deliveryGuarantee", "dedupe", "maxDeliveriesPerTrigger", "maxBytesPerTrigger",
    "minPartitions", "idleTimeoutMs", "mode", "failOnDataLoss", "inDoubt",
)  # fmt: skip
_SPARKS_OWN: Final = frozenset(("checkpointlocation", "queryname", "path", "__source_path__"))


def read_options(given: Mapping[str, str]) -> Options:
    """Reads the options of a query.

    Raises:
        OptionError: one is missing, unknown, or has an invalid value.
    """
    options = {name.lower(): value for name, value in given.items()}
    known = {name.lower(): name for name in KNOWN}
    for name in options:
        if name not in known and name not in _SPARKS_OWN:
            raise OptionError(f"option {name} is not known; there are {', '.join(KNOWN)}")

    def text(name: str, default: str | None = None) -> str:
        value = options.get(name.lower(), default)
        if value is None:
            raise OptionError(f"option {name} is missing")
        return value

    def whole(name: str, default: int) -> int:
        value = options.get(name.lower(), str(default))
        if not value.isdigit() or int(value) == 0:
            raise OptionError(f"option {name}: {value!r} is no whole number above 0")
        return int(value)

    def one_of(name: str, *values: str) -> str:
        value = text(name, values[0]).lower()
        if value not in values:
            raise OptionError(f"option {name}: {value!r} is none of {', '.join(values)}")
        return value

    if not text("amqp.url").lower().startswith(_SCHEMES):
        raise OptionError("option amqp.url: it does not begin with amqp:// or amqps://")
    return Options(
        url=text("amqp.url"),
        address=text("address", options.get("path")),
        ca=Path(options["amqp.ca"]) if "amqp.ca" in options else None,
        store=options.get("waldir"),
        guarantee=Guarantee(one_of("deliveryGuarantee", "exactly-once", "at-least-once")),
        names_guarantee="deliveryguarantee" in options,
        dedupe=one_of("dedupe", "none", "message-id") == "message-id",
        most_rows=whole("maxDeliveriesPerTrigger", 10_000),
        most_octets=whole("maxBytesPerTrigger", 64 << 20),
        partitions=whole("minPartitions", 1),
        idle_seconds=whole("idleTimeoutMs", 1000) / 1000,
        dial_seconds=whole("amqp.dialTimeoutMs", 60_000) / 1000,
        link_seconds=max(1, whole("amqp.linkTimeoutMs", 86_400_000) // 1000),
        mode=one_of("mode", "browse", "consume"),
        loses=text("failOnDataLoss", "true").lower() not in _TRUE,
        resends=one_of("inDoubt", "fail", "resend") == "resend",
        query=options.get("queryname", ""),
    )
