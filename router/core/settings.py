"""What the core is told when it is made."""

import attrs


@attrs.frozen(kw_only=True)
class DialIn:
    """Which accepted connections are a container.

    Attributes:
        identity: their authenticated identity; None: any.
        container_id: their container-id; None: any.
        is_shared: several at a time share the container; otherwise a second one is refused.
    """

    identity: str | None = None
    container_id: str | None = None
    is_shared: bool = False

    def fits(self, user: str | None, container_id: str) -> bool:
        """Returns whether a connection is the container."""
        if self.identity is not None and user != self.identity:
            return False
        return self.container_id in (None, container_id)


def instance_of(container: str, container_id: str) -> str:
    """Returns the name of one of several connections that share a container."""
    return f"{container}@{container_id}"


def container_of(instance: str) -> str:
    """Returns the container of an instance; names of containers have no ``@``."""
    return instance.partition("@")[0]


@attrs.frozen(kw_only=True)
class ContainerTerms:
    """What holds for one configured container.

    Attributes:
        resumes: it resumes links and their unsettled deliveries; None: nobody has said.
        link_credit: most credit, in deliveries, that it is granted on a link; None: as all others.
        retry_seconds: pause before a link to it is tried again; doubles each time.
        retry_limit_seconds: longest such pause.
        failover_seconds: how long deliveries wait for it while it is away; None: for ever.
        takes_addresses: one link may bring it deliveries for many addresses.
        dials_in: which connections are it; None: the router dials it.
    """

    takes_addresses: bool = False
    resumes: bool | None = None
    link_credit: int | None = None
    retry_seconds: float = 1.0
    retry_limit_seconds: float = 60.0
    failover_seconds: float | None = 60.0
    dials_in: DialIn | None = None


@attrs.frozen(kw_only=True)
class CoreSettings:
    """Limits and periods of one worker's core.

    Attributes:
        router_id: our container-id; it names links, dynamic addresses and hops.
        worker: tells the workers of one router apart in link names; empty: there is only one.
        link_credit: most credit, in deliveries, that a peer's link is granted.
        anonymous_credit: credit, in deliveries, of links to the anonymous terminus.
        hop_limit: routers that a delivery may have passed before it is taken for lost.
        max_message_octets: largest message we take; 0: no limit.
        connection_octets: payload without a known outcome that one connection may bring.
        process_octets: the same for all connections together.
        keep_octets: how much of a delivery in parts is kept for a second attempt.
        gather_octets: largest delivery that is gathered for a receiver that takes no parts.
        part_octets: octets in parts that may wait for one congested receiver.
        expiry_seconds: longest time that a terminus is kept for an absent peer.
        suspended_links: how many such termini are kept at most; then the oldest goes.
        retry_seconds: pause before a link to a container is tried again; doubles each time.
        retry_limit_seconds: longest such pause.
        linger_seconds: how long a link to a container that nobody uses stays attached.
        failover_seconds: how long deliveries wait for a container that is away. This and the
            retries are for containers without ``ContainerTerms``.
        attempts: how often a delivery is sent on before the sender hears that it failed; with
            exactly-once, an attempt in doubt does not count.
    """

    router_id: str
    worker: str = ""
    link_credit: int = 1000
    anonymous_credit: int = 250
    hop_limit: int = 16
    max_message_octets: int = 0
    connection_octets: int = 64 << 20
    process_octets: int = 256 << 20
    keep_octets: int = 1 << 20
    gather_octets: int = 16 << 20
    part_octets: int = 1 << 20
    expiry_seconds: int = 3600
    suspended_links: int = 10_000
    retry_seconds: float = 1.0
    retry_limit_seconds: float = 60.0
    linger_seconds: float = 30.0
    failover_seconds: float = 60.0
    attempts: int = 10
