"""Metrics for operators, in Prometheus' format: `GET /metrics`.

Facts of the database are read from it at each scrape, so every web process gives the same answer: take the largest, never
the sum. Counters of the processes themselves are in `request_metrics`. The page needs no token, so it names no team,
consumer or source, costs one scrape a second however many ask, and is not served to the public unless METRICS_HOSTS says so.
"""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from ipaddress import ip_address
from math import inf
from typing import Any, Final

from django.conf import settings
from django.db import DatabaseError, close_old_connections, connection
from django.http import HttpRequest, HttpResponse
from django.http.request import split_domain_port
from django.utils import timezone
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from billing.api.problems import problem, read_only
from billing.api.request_metrics import processes
from billing.closing.selectors import teams_blocked_count
from billing.monitoring import state
from billing.tenancy.audit_anchors import anchor_states
from billing.tenancy.database_roles import current_excess
from billing.tenancy.models import AnchorDelivery
from billing.tenancy.tokens import api_tokens_ending
from billing.usage.selectors import ingest_state
from metering import __version__

SCRAPE_SECONDS: Final = 1.0
"""Seconds for which later requests get the same scrape."""
WITHIN: Final = (".svc", ".local", ".internal", ".localhost")
"""Suffixes of names that only a cluster, a network or a machine resolves."""
FORWARDED: Final = ("HTTP_X_FORWARDED_FOR", "HTTP_FORWARDED")
BACKUPS = {
    "backup_take": ("suanpan_last_backup_timestamp_seconds", "when the last backup was taken; 0: never"),
    "backup_prove": ("suanpan_last_restore_check_timestamp_seconds", "when a backup was last proven by a restore; 0: never"),
}


class _Installation(Collector):
    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("suanpan_build", "the release that answers", {"version": __version__})
        waiting = state.tasks_waiting()
        yield GaugeMetricFamily("suanpan_broker_up", "1 while the broker answers", waiting is not None)
        if waiting is not None:
            yield GaugeMetricFamily("suanpan_tasks_waiting", "tasks that no worker has taken yet", waiting)
        try:
            known = list(_of_database(timezone.now()))
        except DatabaseError:
            known = []
        yield GaugeMetricFamily("suanpan_database_up", "1 while the database answers", bool(known))
        yield from known


def _of_database(now: datetime) -> Iterator[Metric]:
    yield from _of_server()
    yield from _of_ingest()
    yield from _of_operations(now)
    yield from _of_sources(now)
    yield from _of_anchors(anchor_states())
    for action, at in state.backups().items():
        name, text = BACKUPS[action]
        yield GaugeMetricFamily(name, text, _timestamp(at))
    failed = state.deliveries_failed()
    yield _by_label("suanpan_deliveries_failed", "alerts, documents and reports that do not reach anybody", "kind", failed)


def _of_server() -> Iterator[Metric]:
    facts, excess = state.database(), current_excess(connection)
    yield GaugeMetricFamily("suanpan_database_role_restricted", "1 while our role owns and makes no table", not excess)
    yield GaugeMetricFamily("suanpan_database_bytes", "size of the database", facts.size_bytes)
    if settings.DATABASE_DISK_BYTES:
        yield GaugeMetricFamily("suanpan_database_disk_bytes", "size of its disk", settings.DATABASE_DISK_BYTES)
    yield GaugeMetricFamily("suanpan_database_connections", "connections of all clients of the server", facts.connections)
    yield GaugeMetricFamily("suanpan_database_connections_max", "connections it takes", facts.most_connections)
    text = "seconds by which the clock of the web process is ahead of the server's"
    yield GaugeMetricFamily("suanpan_clock_ahead_seconds", text, state.clock_ahead_seconds())


def _of_ingest() -> Iterator[Metric]:
    ingest = ingest_state()
    yield GaugeMetricFamily("suanpan_rollup_deltas", "appended sums that are not folded yet", ingest.deltas)
    yield GaugeMetricFamily("suanpan_closes", "closes made so far", ingest.closes)
    quarantined = dict(sorted(ingest.quarantined.items()))
    yield _by_label("suanpan_quarantine_open", "records that wait for a decision", "reason", quarantined)


def _of_operations(now: datetime) -> Iterator[Metric]:
    waiting, held = state.operations(now), teams_blocked_count()
    yield GaugeMetricFamily("suanpan_teams_held", "teams that a close could not bill while it billed the others", held)
    yield GaugeMetricFamily("suanpan_operations_pending", "closes, issues and the like that wait", waiting.pending)
    yield GaugeMetricFamily("suanpan_operation_age_seconds", "age of the oldest of them", waiting.oldest_seconds)
    yield GaugeMetricFamily("suanpan_operation_attempts", "most attempts of one of them", waiting.attempts)
    beats = {part: _timestamp(at) for part, at in state.heartbeats().items()}
    yield _by_label("suanpan_heartbeat_timestamp_seconds", "when a part was last seen at work; 0: never", "part", beats)


def _of_sources(now: datetime) -> Iterator[Metric]:
    reporting = state.reporting(now)
    silent = state.silent_by_kind(reporting)
    yield _by_label("suanpan_sources_silent", "agents and gateways that are expected and report nothing", "kind", silent)
    since = min((one.since for one in reporting.silent), default=now)
    text = "since the longest silent of them was complete"
    yield GaugeMetricFamily("suanpan_source_silent_seconds", text, (now - since).total_seconds())
    if reporting.data_through is not None:
        text = "through when usage is complete"
        yield GaugeMetricFamily("suanpan_usage_complete_timestamp_seconds", text, reporting.data_through.timestamp())
    text = "API tokens in use that end within two weeks"
    yield GaugeMetricFamily("suanpan_tokens_ending", text, api_tokens_ending(now).count())
    text = "namespaces and consumers with usage of the last hours and without an owner"
    yield GaugeMetricFamily("suanpan_names_unowned", text, state.unowned_count(now))


def _of_anchors(states: list[AnchorDelivery | None]) -> Iterator[Metric]:
    """Yield the state of audit anchors, nothing without AUDIT_ANCHOR; a place that never got one is infinitely late."""
    if not states:
        return
    sent = [one.sent_at if one else None for one in states]
    ages = [(timezone.now() - at).total_seconds() if at else inf for at in sent]
    failing = sum(one is not None and one.failures > 0 for one in states)
    yield GaugeMetricFamily("suanpan_audit_anchor_age_seconds", "since the last anchor of the latest place", max(ages))
    yield GaugeMetricFamily("suanpan_audit_anchor_failing", "places that did not take the last anchor", failing)


def _by_label(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=[label])
    for one, value in values.items():
        family.add_metric([one], value)
    return family


def _timestamp(at: datetime | None) -> float:
    return at.timestamp() if at else 0.0


@read_only
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer with the scrape, or 404 at a public host."""
    if not is_served_to(request.META):
        detail = f"at the host {request.get_host()!r}, or through a proxy, metrics are served only if METRICS_HOSTS names it"
        return problem(404, "Not Found", detail)
    return HttpResponse(scrape(), content_type=CONTENT_TYPE_LATEST)


def is_served_to(meta: Mapping[str, Any]) -> bool:
    """Return True if the sender of these headers may read metrics: anyone at a host of METRICS_HOSTS, others from inside.

    Inside means an address or a name that is known only there, and no proxy. `meta`: request headers as WSGI META.
    """
    domain, _ = split_domain_port(str(meta.get("HTTP_HOST") or meta.get("SERVER_NAME", "")))
    if domain in settings.METRICS_HOSTS:
        return True
    return not any(name in meta for name in FORWARDED) and _is_within(domain)


def _is_within(domain: str) -> bool:
    try:
        return bool(ip_address(domain.strip("[]")))
    except ValueError:
        return "." not in domain or domain.endswith(WITHIN)


def scrape() -> bytes:
    """Return all metrics as of now, in the text format of Prometheus."""
    installation = CollectorRegistry(auto_describe=False)
    installation.register(_Installation())
    return bytes(generate_latest(installation)) + bytes(generate_latest(processes()))


class Scrapes:
    """Shared scrape, made at most once a second in a thread of its own; used in the loop of the server."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "metrics")
        self._last: asyncio.Future[bytes] | None = None
        self._good_until = 0.0

    async def latest(self) -> bytes:
        """Return the last scrape, or the next.  Raises the error of a failed one."""
        loop = asyncio.get_running_loop()
        if self._last is None or (self._last.done() and loop.time() >= self._good_until):
            self._last = loop.run_in_executor(self._thread, _scrape_apart)
            self._last.add_done_callback(self._made)
        # shielded: a client that leaves must not cancel the scrape of the others
        return await asyncio.shield(self._last)

    async def stop(self) -> None:
        """Stop after the running scrape."""
        await asyncio.to_thread(self._thread.shutdown)

    def _made(self, last: "asyncio.Future[bytes]") -> None:
        self._good_until = last.get_loop().time() + SCRAPE_SECONDS
        if not last.cancelled():
            last.exception()  # marks the error as read, even if every caller has left


def _scrape_apart() -> bytes:
    close_old_connections()
    try:
        return scrape()
    finally:
        close_old_connections()
