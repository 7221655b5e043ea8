"""The metrics of ``/metrics``: a page made from a scrape that has a sample of each."""

from collections.abc import Iterator
from typing import Final

import attrs
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from router.core.snapshot import PeerRecord
from router.net.validity import Validity
from router.service.certificates import TlsRecord
from router.service.control import (
    JournalRecord,
    LoginRecord,
    MeshLinkRecord,
    MeshRecord,
    StoredRecord,
    StoreRecord,
)
from router.service.lease import LeaseRecord
from router.service.lives import WorkerLives
from router.service.metrics import render
from tests.reference.text import code, page, table
from tests.support.fleets import (
    container,
    listener,
    mesh_site,
    route,
    router_snapshot,
    worker_snapshot,
)

_CERTIFICATE: Final = Validity(
    option="listeners[0].tls.cert", file="tls.pem", begins=0.0, ends=9e9, own_ends=9e9
)

_STORE: Final = StoreRecord(
    is_connected=True,
    routes=(StoredRecord(route="orders", messages=0, octets=0, oldest_seconds=0.0, is_full=False),),
)


_MESH: Final = MeshRecord(
    router="dc1",
    links=(MeshLinkRecord(router="dc2", cost=10, is_up=True),),
    sites=(mesh_site("dc2", cost=10),),
)


def families() -> Iterator[Metric]:
    """Yields every family that a router may expose, with at least a sample of each."""
    snapshot = router_snapshot(route("orders"), containers=[container()], listeners=[listener()])
    journal = JournalRecord(trouble=None, records=10, durable=4, waiting_octets=600)
    logins = LoginRecord(failed=5, sources=(("10.0.0.7", 3),))
    snapshot = attrs.evolve(
        snapshot,
        core=attrs.evolve(snapshot.core, peers=(PeerRecord(container="east", is_configured=True),)),
        workers=(worker_snapshot(1, journal=journal, logins=logins, store=_STORE, mesh=_MESH),),
        lives=(WorkerLives(worker=1, is_up=True, ends=1),),
        tls=TlsRecord(in_use=(_CERTIFICATE,)),
        lease=LeaseRecord(leads=True, epoch=7, place="a", since=4000.0, age_seconds=0.3),
    )
    yield from text_string_to_metric_families(render(snapshot).decode())


def samples() -> dict[str, set[str]]:
    """Returns the labels of every sample, by its name."""
    found: dict[str, set[str]] = {}
    for family in families():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def metrics_page() -> str:
    """Returns the page."""
    rows = []
    for family in families():
        labels = dict.fromkeys(name for sample in family.samples for name in sample.labels)
        names = dict.fromkeys(sample.name for sample in family.samples)
        rows.append(
            (
                ", ".join(map(code, names)),
                family.type,
                ", ".join(labels),
                family.documentation,
            )
        )
    lines = [
        "The admin endpoint serves these at `/metrics`, in the text format of Prometheus."
        " `direction` is `incoming` or `outgoing` with respect to the router.",
        "Every route that has been used has its series, and so have the first 1,000 unused ones;"
        " of peers that are not in the file some 200 are told apart.",
        "",
        "[deploy/prometheus/alerts.yaml](../../deploy/prometheus/alerts.yaml) has alert rules,"
        " [deploy/grafana-dashboard.json](../../deploy/grafana-dashboard.json) a dashboard.",
        "",
        *table(("metric", "type", "labels", "meaning"), rows),
    ]
    return page("Metrics", "a scrape of `router/service/metrics.py`", lines)
