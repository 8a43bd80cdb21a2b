"""`GET /metrics`: what an operator watches of ingest, as Prometheus reads it.

Facts of the ledger come from the database, so that any web process gives the same answer; what one process knows only
of itself carries its process id. No names of teams, consumers or sources: the page needs no token.
"""

import os
from collections.abc import Iterator

from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from billing.api.admission import gate
from billing.api.health import broker_state
from billing.closing.selectors import teams_blocked_count
from billing.usage.selectors import ingest_state
from metering import __version__


class _Ingest(Collector):
    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("suanpan_build", "the release that answers", {"version": __version__})
        yield from _of_process()
        yield GaugeMetricFamily("suanpan_broker_up", "1 while the broker answers", broker_state() == "ok")
        try:
            state, held = ingest_state(), teams_blocked_count()
        except DatabaseError:
            yield GaugeMetricFamily("suanpan_database_up", "1 while the database answers", 0)
            return
        yield GaugeMetricFamily("suanpan_database_up", "1 while the database answers", 1)
        yield GaugeMetricFamily("suanpan_rollup_deltas", "appended sums that are not folded yet", state.deltas)
        yield GaugeMetricFamily("suanpan_closes", "closes made so far", state.closes)
        yield GaugeMetricFamily("suanpan_teams_held", "teams that a close could not bill while it billed the others", held)
        quarantine = GaugeMetricFamily("suanpan_quarantine_open", "records that wait for a decision", labels=["reason"])
        for reason, count in sorted(state.quarantined.items()):
            quarantine.add_metric([reason], count)
        yield quarantine


class _Process(Collector):
    def collect(self) -> Iterator[Metric]:
        yield from _of_process()


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
