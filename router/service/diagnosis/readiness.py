"""Whether the router is ready for traffic, and why not."""

import time

from router.service.diagnosis import disks
from router.service.fleet import RouterSnapshot
from router.service.lease import LeaseRecord


def reasons_not_ready(snapshot: RouterSnapshot) -> tuple[str, ...]:
    """Returns the reasons why the router is not ready for traffic; none: it is ready."""
    reasons = []
    if snapshot.is_draining:
        reasons.append("it is draining")
    closed = [listener.name for listener in snapshot.listeners if not listener.addresses]
    if not snapshot.is_draining:
        reasons += [f"listener {name} is not open" for name in closed]
    if snapshot.is_standby:
        return (*reasons, f"it is a standby: {who_leads(snapshot.lease)}")
    containers = {container.name: container for container in snapshot.containers}
    for name in dict.fromkeys(snapshot.required_containers):
        container = containers.get(name)
        if container is None or not container.is_connected:
            error = "" if container is None or container.error is None else f": {container.error}"
            reasons.append(f"container {name} is not connected{error}")
    reasons += [
        f"the journal cannot write: {trouble}" for trouble in disks.journal_troubles(snapshot)
    ]
    return tuple(reasons)


def who_leads(lease: LeaseRecord | None) -> str:
    """Says who leads, for people."""
    if lease is None or (lease.place is None and lease.trouble is None):
        return "who leads is not known yet"
    if lease.trouble is not None:
        last = f"; the last that was seen: {lease.place}" if lease.place else ""
        return f"who leads cannot be seen{_unseen_since(lease)}: {lease.trouble}{last}"
    if lease.leads:
        return "this router has the lease, and is about to serve"
    if not lease.is_led:
        return "none leads at present"
    return f"the router on {lease.place} leads"


def _unseen_since(lease: LeaseRecord) -> str:
    if lease.seen is None:
        return ""
    return time.strftime(" since %Y-%m-%d %H:%M:%S", time.localtime(lease.seen))


def still_ready(snapshot: RouterSnapshot) -> str:
    """Says why the router is ready although something is broken."""
    named = ", ".join(dict.fromkeys(snapshot.required_containers))
    needed = f" and {named} connected" if named else ""
    waits = "" if named else " (router run --wait-for CONTAINER makes it depend on a container)"
    return (
        f"its listeners are open{needed}, and its other routes serve: readiness depends on no more"
        f"{waits}; router status --check fails while anything is broken"
    )
