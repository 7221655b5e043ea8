"""Who leads, of several routers with the same id and one journal on PostgreSQL."""

import time

import attrs

from router.journal.postgres.lease import Leader, LeaseFile

RELEASED_SECONDS = 86_400.0 * 365
"""A lease that is older was released: its time is set to 1970."""


@attrs.frozen(kw_only=True)
class LeaseRecord:
    """Who leads, as this router knows it.

    Attributes:
        leads: this router has the lease, or had it and has not heard of another leader.
        epoch: of the lease; 0: no router has led yet.
        place: the leader's machine and process; None: none has led yet.
        since: when it took the lease, in seconds since 1970; None: none has led yet.
        age_seconds: since the lease was renewed; None: it was released, none has led yet, or it is
            not known, because of ``trouble``.
        trouble: why the database cannot be read now; None: it can.
        seen: when this router last saw the lease in the database, in seconds since 1970; None: it
            has not seen it, or leads.
    """

    leads: bool
    epoch: int
    place: str | None
    since: float | None
    age_seconds: float | None
    trouble: str | None = None
    seen: float | None = None

    @property
    def is_led(self) -> bool:
        """Whether some router has led, and has not released the lease."""
        return self.age_seconds is not None


@attrs.frozen
class Sight:
    """The lease, as it was last seen in the database.

    Attributes:
        leader: who leads.
        at: when it was seen, in seconds since 1970.
        at_monotonic: the same, in seconds of a clock that does not step.
    """

    leader: Leader
    at: float = attrs.field(factory=time.time)
    at_monotonic: float = attrs.field(factory=time.monotonic)


def lease_record(
    sight: Sight | None, file: LeaseFile, trouble: str | None, *, leads: bool
) -> LeaseRecord:
    """Returns who leads.

    Args:
        sight: of the lease; None: it has not been seen yet.
        file: what this router knows of its own lease.
        trouble: why the database cannot be read.
        leads: this router leads.
    """
    if sight is None or not sight.leader.epoch:
        return LeaseRecord(
            leads=leads, epoch=0, place=None, since=None, age_seconds=None, trouble=trouble
        )
    leader = sight.leader
    age_seconds = leader.age_seconds + time.monotonic() - sight.at_monotonic
    if leads:
        age_seconds = file.age_seconds
    is_unknown = age_seconds > RELEASED_SECONDS or (trouble is not None and not leads)
    return LeaseRecord(
        leads=leads,
        epoch=file.epoch if leads else leader.epoch,
        place=leader.place,
        since=leader.since,
        age_seconds=None if is_unknown else age_seconds,
        trouble=trouble,
        seen=None if leads else sight.at,
    )
