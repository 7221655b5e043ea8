"""Converts records to views, and views to JSON."""

from collections.abc import Collection, Mapping
from typing import Any, Final

import attrs
import cattrs
from cattrs.gen import make_dict_unstructure_fn, override

from router.core.snapshot import PeerRecord, RouteRecord
from router.journal.store.looking import Held
from router.journal.store.queues import priority_of
from router.service.admin.history import Moment, Rates, key_of
from router.service.admin.views import (
    ConnectionView,
    PeerView,
    RouteState,
    RouteView,
    StoredAddressView,
    StoredRouteView,
    WorkerView,
)
from router.service.control import ConnectionEntry
from router.service.diagnosis.deliveries import is_rejecting
from router.service.fleet import Page, RouterSnapshot
from router.service.stores import StoredSummary


def route_view(
    record: RouteRecord, rates: Mapping[str, Rates], away: Collection[str] = ()
) -> RouteView:
    """Returns the view of a route.

    Args:
        record: the route.
        rates: by route.
        away: names of the containers that are not connected.
    """
    fields = _shared_fields(record, RouteView)
    own = rates.get(record.name)
    return RouteView(**fields, state=route_state(record, own, away), rates=own)


def peer_view(record: PeerRecord, moment: Moment) -> PeerView:
    """Returns the view of a peer."""
    fields = _shared_fields(record, PeerView)
    return PeerView(**fields, rates=moment.peers.get(key_of(record)))


def route_state(record: RouteRecord, rates: Rates | None, away: Collection[str] = ()) -> RouteState:
    """Returns the state of a route."""
    is_flowing = rates is not None and (rates.received > 0 or rates.sent > 0)
    is_needed = record.from_ is not None or record.senders or record.receivers or record.queued
    troubles = [uplink.step for uplink in record.uplinks if uplink.step in ("away", "paused")]
    if record.stall is not None:
        return RouteState.STALLED
    if record.is_paused:
        return RouteState.PAUSED
    if is_needed and troubles:
        return RouteState.BROKEN
    if is_rejecting(record):
        return RouteState.REJECTING
    if is_flowing:
        return RouteState.FLOWING
    if record.blocked_senders or record.queued or record.postponed:
        return RouteState.WAITING
    ends = (record.from_, *record.to, record.fallback)
    if away and any(_container(each) in away for each in ends):
        return RouteState.AWAY
    return RouteState.IDLE


def _container(endpoint: str | None) -> str | None:
    """Returns the container of an endpoint, ``container`` or ``container/address``."""
    return None if endpoint is None else endpoint.partition("/")[0]


def stored_route_view(summary: StoredSummary) -> StoredRouteView:
    """Returns the view of a stored route."""
    record, storing = summary.record, summary.storing
    return StoredRouteView(
        route=summary.name,
        messages=record.messages,
        octets=record.octets,
        oldest_seconds=record.oldest_seconds if record.messages else None,
        stored_rate=record.stored_rate,
        forwarded_rate=record.forwarded_rate,
        drain_seconds=summary.drain_seconds,
        messages_most=None if storing is None else storing.messages,
        octets_most=None if storing is None else storing.octets,
        age_seconds=None if storing is None else storing.age_seconds,
        when_full=None if storing is None else storing.full.value,
        share=summary.share,
        is_full=record.is_full,
        dead=record.dead,
        resting=record.resting,
        rejected=record.rejected,
        expired=record.expired,
        dropped=record.dropped,
        waits_for=summary.waits_for,
    )


def stored_address_view(held: Held, at: float) -> StoredAddressView:
    """Returns the view of a stored address.

    Args:
        held: what the store holds of it.
        at: now, in seconds since 1970.
    """
    return StoredAddressView(
        address=held.address.decode(errors="replace"),
        priority=priority_of(held.priority),
        messages=held.messages,
        octets=held.octets,
        oldest_seconds=None if held.oldest_ns is None else max(0.0, at - held.oldest_ns / 1e9),
    )


def connection_view(worker: int, entry: ConnectionEntry) -> ConnectionView:
    """Returns the view of a connection."""
    shown = {
        **_shared_fields(entry.record, ConnectionView),
        **_shared_fields(entry, ConnectionView),
    }
    return ConnectionView(worker=worker, **shown)


def located(view: type[Any], worker: int, record: attrs.AttrsInstance) -> Any:
    """Returns a view with the fields of one worker's record and the worker's number."""
    return view(worker=worker, **_shared_fields(record, view))


def worker_views(snapshot: RouterSnapshot) -> tuple[WorkerView, ...]:
    """Returns the views of the workers."""
    ends = {lives.worker: lives.ends for lives in snapshot.lives}
    return tuple(
        WorkerView(
            worker=worker.worker,
            restarts=ends.get(worker.worker, 0),
            express=worker.express,
            **_shared_fields(worker.vitals, WorkerView),
        )
        for worker in snapshot.workers
    )


def page_of(view: type[Any], page: Page[Any]) -> tuple[Any, ...]:
    """Returns the views of a page's items."""
    return tuple(located(view, worker, record) for worker, record in page.items)


def _shared_fields(record: attrs.AttrsInstance, view: type[Any]) -> dict[str, Any]:
    wanted = {field.name for field in attrs.fields(view)}
    return {
        field.name: getattr(record, field.name)
        for field in attrs.fields(type(record))
        if field.name in wanted
    }


# JSON

_converter: Final = cattrs.Converter()


def _rename_keywords(cls: type[Any]) -> Any:
    names: Any = {
        field.name: override(rename=field.name.rstrip("_"))
        for field in attrs.fields(cls)
        if field.name.endswith("_")
    }
    return make_dict_unstructure_fn(cls, _converter, **names)


_converter.register_unstructure_hook_factory(attrs.has, _rename_keywords)


def as_json(record: attrs.AttrsInstance) -> Any:
    """Converts a record to values that ``json.dumps`` accepts."""
    return _converter.unstructure(record)
