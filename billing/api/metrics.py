"""`GET /metrics`: what an operator watches of ingest, as Prometheus reads it.

Facts of the ledger come from the database, so that any web process gives the same answer; what one process knows only
of itself carries its process id. No names of teams, consumers or sources: the page needs no token.
"""

import os
from collections.abc import Iterator
from math import inf

from django.db import DatabaseError, connection
from django.db.models import Max
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from billing.api.admission import gate
from billing.api.health import broker_state
from billing.closing.selectors import teams_blocked_count
from billing.tenancy.audit_anchors import anchor_states
from billing.tenancy.database_roles import current_excess
from billing.tenancy.models import AnchorDelivery, AuditEntry
from billing.usage.selectors import ingest_state
from metering import __version__

BACKUPS = {
    "backup_take": ("suanpan_last_backup_timestamp_seconds", "when the last backup was taken; 0: never"),
    "backup_prove": ("suanpan_last_restore_check_timestamp_seconds", "when a backup was last proven by a restore; 0: never"),
}
"""What the audit log notes of backups, and the metric that shows when."""


class _Ingest(Collector):
    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("suanpan_build", "the release that answers", {"version": __version__})
        yield from _of_process()
        yield GaugeMetricFamily("suanpan_broker_up", "1 while the broker answers", broker_state() == "ok")
        try:
            state, held, excess = ingest_state(), teams_blocked_count(), current_excess(connection)
            anchors, backups = anchor_states(), list(_of_backups())
        except DatabaseError:
            yield GaugeMetricFamily("suanpan_database_up", "1 while the database answers", 0)
            return
        yield GaugeMetricFamily("suanpan_database_up", "1 while the database answers", 1)
        yield GaugeMetricFamily("suanpan_database_role_restricted", "1 while our role owns and makes no table", not excess)
        yield GaugeMetricFamily("suanpan_rollup_deltas", "appended sums that are not folded yet", state.deltas)
        yield GaugeMetricFamily("suanpan_closes", "closes made so far", state.closes)
        yield GaugeMetricFamily("suanpan_teams_held", "teams that a close could not bill while it billed the others", held)
        quarantine = GaugeMetricFamily("suanpan_quarantine_open", "records that wait for a decision", labels=["reason"])
        for reason, count in sorted(state.quarantined.items()):
            quarantine.add_metric([reason], count)
        yield quarantine
        yield from _of_anchors(anchors)
        yield from backups


def _of_anchors(states: list[AnchorDelivery | None]) -> Iterator[Metric]:
    """Nothing where AUDIT_ANCHOR names no place; a place that never got one is infinitely late."""
    if not states:
        return
    sent = [state.sent_at if state else None for state in states]
    ages = [(timezone.now() - at).total_seconds() if at else inf for at in sent]
    failing = sum(state is not None and state.failures > 0 for state in states)
    yield GaugeMetricFamily("suanpan_audit_anchor_age_seconds", "since the last anchor of the latest place", max(ages))
    yield GaugeMetricFamily("suanpan_audit_anchor_failing", "places that did not take the last anchor", failing)


class _Process(Collector):
    def collect(self) -> Iterator[Metric]:
        yield from _of_process()


def _of_backups() -> Iterator[Metric]:
    last = dict(AuditEntry.objects.filter(action__startswith="backup_").values_list("action").annotate(Max("at")))
    for action, (name, text) in BACKUPS.items():
        yield GaugeMetricFamily(name, text, last[action].timestamp() if action in last else 0)


def _of_process() -> Iterator[Metric]:
    process = [str(os.getpid())]
    held = GaugeMetricFamily("suanpan_ingest_bytes_in_flight", "bytes of bodies being taken in", labels=["process"])
    held.add_metric(process, gate.held)
    yield held
    refused = CounterMetricFamily("suanpan_ingest_refused_busy", "reports asked to come again", labels=["process"])
    refused.add_metric(process, gate.refused)
    yield refused


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """The metrics of the moment."""
    return HttpResponse(_written(_Ingest()), content_type=CONTENT_TYPE_LATEST)


def process_metrics() -> bytes:
    """What this process knows of itself alone, without asking the database."""
    return _written(_Process())


def _written(collector: Collector) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    return bytes(generate_latest(registry))
