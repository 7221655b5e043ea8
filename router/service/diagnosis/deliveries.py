"""What is wrong with the deliveries of a route: stalled, rejected, in doubt, paused."""

from collections.abc import Iterator
from typing import Final

from router.core.snapshot import Rejection, RouteRecord, Stall
from router.routes.route import Guarantee, InDoubt, Route
from router.service.advice import (
    first_fitting,
)
from router.service.diagnosis.problem import Problem, Severity
from router.service.durations import show_seconds
from router.service.fleet import RouterSnapshot

REJECTED_SECONDS: Final = 300.0
"""How long a rejection is reported as a problem."""


def stalls(snapshot: RouterSnapshot) -> tuple[str, ...]:
    """Describes every stall in a line; stalls do not affect readiness."""
    return tuple(
        f"route {route.name} is stalled: {_describe_stall(route)}"
        for route in snapshot.core.routes
        if route.stall is not None
    )


def stalled(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Routes on which nothing moves."""
    for route in snapshot.core.routes:
        if route.stall is not None:
            yield Problem(
                severity=Severity.ERROR,
                subject="route",
                name=route.name,
                text=f"is stalled: {_describe_stall(route)}",
                advice=_stall_advice(route.name, route.stall),
            )


def _describe_stall(route: RouteRecord) -> str:
    stall = route.stall
    assert stall is not None
    where = "" if stall.address == route.address else f" at {stall.address!r}"
    return f"{stall.reason}{where}; nothing has moved for {show_seconds(stall.seconds)}"


def _stall_advice(route: str, stall: Stall) -> str:
    trace = f"router trace {stall.address!r} shows what happens"
    if stall.deliveries:
        return f"router deliveries --route {route!r} lists what waits, {trace}"
    return f"the senders have no credit; {trace}"


def is_rejecting(route: RouteRecord) -> bool:
    """Returns whether a delivery of a route was rejected lately."""
    return route.rejection is not None and route.rejection.seconds <= REJECTED_SECONDS


def rejections(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Routes of which deliveries were rejected lately."""
    by_name = snapshot.routes.table.by_name
    for route in snapshot.core.routes:
        rejection = route.rejection
        if rejection is None or not is_rejecting(route):
            continue
        count = "1 delivery was" if rejection.count == 1 else f"{rejection.count} deliveries were"
        who = f"by {rejection.peer}"
        if rejection.by_router:
            who = f"by the router, from {rejection.peer}"
        where = f" at {rejection.address!r}" if rejection.address else ""
        reason = rejection.reason or "no reason was given"
        yield Problem(
            severity=Severity.ERROR,
            subject="route",
            name=route.name,
            text=f"{count} rejected {who}, the last {show_seconds(rejection.seconds)} ago{where}:"
            f" {reason}",
            advice=_rejection_advice(rejection, by_name.get(route.name)),
        )


def _rejection_advice(rejection: Rejection, route: Route | None) -> str:
    trace = f"router trace {rejection.address!r}" if rejection.address else "router trace"
    otherwise = f"{_who_was_told(rejection, route)}; {trace} shows the next ones"
    return first_fitting(_REJECTION_ADVICE, rejection.reason, otherwise)


def _who_was_told(rejection: Rejection, route: Route | None) -> str:
    """Says whether the senders of rejected deliveries have the outcome."""
    place = None if route is None else route.dead_letter
    fate = "were dropped" if place is None else f"went to the dead letters at {place}"
    if route is not None and route.store is not None:
        return f"what had been stored {fate}; the senders of the others have that outcome"
    if not rejection.untold:
        return "their senders have that outcome"
    if rejection.untold >= rejection.count:
        return f"their senders had settled them: they {fate}"
    others = "the senders of the others have that outcome"
    return f"{rejection.untold} had been settled by their senders and {fate}; {others}"


def in_doubt(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Deliveries of which nobody knows whether they were taken."""
    by_name = snapshot.routes.table.by_name
    for route in snapshot.core.routes:
        if route.in_doubt:
            count = "1 delivery is" if route.in_doubt == 1 else f"{route.in_doubt} deliveries are"
            own = by_name.get(route.name)
            yield Problem(
                severity=Severity.ERROR if _holds(own) else Severity.WARNING,
                subject="route",
                name=route.name,
                text=f"{count} in doubt: sent, and the connection was lost before the outcome came",
                advice="router deliveries --in-doubt lists them; they are settled when the peer"
                " resumes, or by router deliveries resolve",
            )


def _holds(route: Route | None) -> bool:
    """Returns whether deliveries in doubt of a route may have to be decided by a person."""
    if route is None or route.guarantee is not Guarantee.EXACTLY_ONCE:
        return False
    return route.in_doubt is not InDoubt.RESEND


def paused(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Routes that an operator has paused."""
    for route in snapshot.core.routes:
        if route.is_paused:
            yield Problem(
                severity=Severity.NOTE,
                subject="route",
                name=route.name,
                text="is paused",
                advice=f"router resume {route.name!r} lets it go on",
            )


_REJECTION_ADVICE: Final = (
    ("nobody receives", "let somebody receive there, or set unroutable: of the route"),
    (
        "no binding",
        "bind a queue there for the routing key that the route publishes with",
    ),
    ("not-found", "make the address there, or name one that exists in `to` of the route"),
    ("unauthorized", "give our user there the right to publish to this address"),
    ("message-size", "send smaller messages, or let the receiver take greater ones"),
    ("decode", "look at the sender: the message does not fit the receiver's protocol"),
    ("not-allowed", "look at the rules of policy, and at the receiver's"),
)
