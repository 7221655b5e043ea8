"""What is wrong with containers, other sites and peers, and with the links to them."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from router.core.reach import is_sibling_name
from router.core.snapshot import Snapshot
from router.model.condition import NO_REASON
from router.model.terminus import Role
from router.service.advice import (
    connection_advice,
    container_words,
    link_advice,
)
from router.service.control import ContainerRecord
from router.service.diagnosis.problem import Problem, Severity
from router.service.durations import show_seconds
from router.service.fleet import RouterSnapshot

BUDGET_SHARE: Final = 0.75
"""Share of a worker's octet budget from which on its use is reported; then links that keep much get
no credit (``links.credit``)."""

NAMED_MOST: Final = 3
"""Receivers that are named in one line."""

CONNECTING_SECONDS: Final = 2.0
"""A container that is disconnected for less is probably just being dialed."""


def containers(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Containers that are not connected."""
    for container in snapshot.containers:
        if container.is_connected:
            continue
        is_fresh = container.seconds < CONNECTING_SECONDS and container.error is None
        if not container.urls:
            yield _away(container)
            continue
        reason = "" if container.error is None else f": {container.error}"
        attempts = "1 attempt" if container.failed == 1 else f"{container.failed} attempts"
        tried = f" ({attempts} failed)" if container.failed else ""
        yield Problem(
            severity=Severity.WARNING if is_fresh else Severity.ERROR,
            subject="container",
            name=container.name,
            text=f"is not connected for {show_seconds(container.seconds)}{reason}{tried}",
            advice=_connection_advice(container),
        )


def _away(container: ContainerRecord) -> Problem:
    """Describes the absence of a container that dials in."""
    is_fresh = container.seconds < CONNECTING_SECONDS
    refused = f"; {container.failed} connections were refused" if container.failed else ""
    return Problem(
        severity=Severity.WARNING if is_fresh else Severity.ERROR,
        subject="container",
        name=container.name,
        text=f"has not dialed in for {show_seconds(container.seconds)}{refused}",
        advice="start it, and look whether it reaches a listener and logs in with"
        f" containers.{container.name}.identity; the log has its refusals",
    )


def _connection_advice(container: ContainerRecord) -> str:
    ports = (urlsplit(url).port for url in container.urls)
    words = container_words(container.name, container.urls, filter(None, ports))
    return connection_advice(container.error or "", words)


def uplinks(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Links that a container ends, or refuses."""
    for route in snapshot.core.routes:
        seen = set()  # a link of two addresses, or of two workers, fails for one reason
        for uplink in route.uplinks:
            place = uplink.container, uplink.address, uplink.error
            if uplink.step != "paused" or place in seen:
                continue
            seen.add(place)
            reason = uplink.error or NO_REASON
            yield Problem(
                severity=Severity.ERROR,
                subject="route",
                name=route.name,
                text=f"{uplink.container} ends the link to {uplink.address!r}: {reason}",
                advice=link_advice(reason, uplink.address, "it is tried again for ever"),
            )


def mesh(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Sites that are not reached."""
    meshes = [worker.mesh for worker in snapshot.workers if worker.mesh is not None]
    for site in (site for mesh in meshes for site in mesh.sites):
        if site.cost is None:
            yield Problem(
                severity=Severity.ERROR,
                subject="site",
                name=site.router,
                text="of the mesh is not reached: addresses that it alone serves get no credit",
                advice="see the log for mesh.link_down; if the site is gone for good, it is"
                " forgotten after an hour",
            )


def budget(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A budget of payload that is nearly used up."""
    fullest = max((snapshot.core, *(each.core for each in snapshot.workers)), key=_budget_share)
    if _budget_share(fullest) >= BUDGET_SHARE:
        yield Problem(
            severity=Severity.WARNING,
            subject="router",
            name=snapshot.id,
            text=f"{fullest.payload_octets} of {fullest.payload_limit_octets} octets of payload"
            f" wait for an outcome{_who_keeps_most(fullest)}; senders of which much"
            " waits get no credit",
            advice="look why these receivers do not read or settle; limits.process_octets is the"
            " budget",
        )


def _budget_share(core: Snapshot) -> float:
    limit = core.payload_limit_octets
    return core.payload_octets / limit if limit else 0.0


def _who_keeps_most(core: Snapshot) -> str:
    """Names the route of which most payload waits, and its receivers with most deliveries."""
    route = max(core.routes, key=lambda each: each.payload_octets, default=None)
    if route is None or not route.payload_octets:
        return ""
    receivers = [each for each in core.peers if (route.name, Role.SENDER) in each.routes]
    receivers.sort(key=lambda each: (each.outgoing_unsettled, each.congested), reverse=True)
    slow = [each for each in receivers if each.outgoing_unsettled or each.congested]
    text = f", {route.payload_octets} of route {route.name}"
    if slow:
        names = ", ".join(each.container for each in slow[:NAMED_MOST])
        more = len(slow) - NAMED_MOST
        text += f" at {names}" + (f" and {more} more receivers" if more > 0 else "")
    return text


def peers(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Peers that are slow, or get no credit."""
    for peer in snapshot.core.peers:
        is_worker = is_sibling_name(peer.container)
        subject = "worker" if is_worker else "peer"
        name = peer.container.removeprefix("/") if is_worker else peer.container
        if peer.held:
            yield Problem(
                severity=Severity.WARNING,
                subject=subject,
                name=name,
                text=f"has {peer.payload_octets} octets here whose outcome is not known;"
                " it gets no credit until some are",
                advice="limits.connection_octets is the budget",
            )
        if peer.congested:
            yield Problem(
                severity=Severity.WARNING,
                subject=subject,
                name=name,
                text="reads slower than it is sent to; what is for it waits",
                advice="look whether it, or the network to it, is overloaded",
            )
