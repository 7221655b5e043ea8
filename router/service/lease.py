"""Who leads, of several routers with the same id and one journal on PostgreSQL."""

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
        age_seconds: since the lease was renewed; None: it was released, or none has led yet.
        trouble: why the database cannot be read now; None: it can.
    """

    leads: bool
    epoch: int
    place: str | None
    since: float | None
    age_seconds: float | None
    trouble: str | None = None

    @property
    def is_led(self) -> bool:
        """Whether some router has led, and has not released the lease."""
        return self.age_seconds is not None


def lease_record(
    leader: Leader | None, file: LeaseFile, trouble: str | None, *, leads: bool
) -> LeaseRecord:
    """Returns who leads.

    Args:
        leader: as last seen in the database; None: it has not been seen yet.
        file: what this router knows of its own lease.
        trouble: why the database cannot be read.
        leads: this router leads.
    """
    age_seconds = None if leader is None else leader.age_seconds
    if leads:
        age_seconds = file.age_seconds
    if leader is None or not leader.epoch:
        return LeaseRecord(
            leads=leads, epoch=0, place=None, since=None, age_seconds=None, trouble=trouble
        )
    is_released = age_seconds is None or age_seconds > RELEASED_SECONDS
    return LeaseRecord(
        leads=leads,
        epoch=file.epoch if leads else leader.epoch,
        place=leader.place,
        since=leader.since,
        age_seconds=None if is_released else age_seconds,
        trouble=trouble,
    )
