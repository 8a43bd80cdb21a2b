"""Agents and sources: who is alive, how far each has told, and what is missing."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.portal.access import staff_page
from billing.portal.months import month_choice
from billing.portal.sources import Sources
from billing.portal.tables import Column, Row, Table, download
from billing.tenancy.models import BillingSetup


@require_safe
@staff_page
def sources(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Every agent and gateway, and the gaps of a month."""
    now = timezone.now()
    choice = month_choice(request.GET.get("month", ""), setup, now)
    found = Sources(choice.period, now)
    if (file := download(request, _tables(found))) is not None:
        return file
    context = {"nav": "sources", "setup": setup, "choice": choice, "period": choice.period, "found": found, "as_of": now}
    return render(request, "portal/sources.html", context)


def _tables(found: Sources) -> dict[str, Callable[[], Table]]:
    return {
        "agents": lambda: _agents(found), "gateways": lambda: _gateways(found), "gaps": lambda: _gaps(found),
        "numbers": lambda: _numbers(found), "notes": lambda: _notes(found),
    }  # fmt: skip


def _agents(found: Sources) -> Table:
    columns = [Column(name) for name in ("agent", "source", "state", "heard_at", "watermark")]
    rows: list[Row] = [
        [item.name, item.source, "silent" if item.silent else "alive", item.heard_at, item.watermark, item.lag]
        for item in found.agents
    ]
    return Table("agents", [*columns, Column("lag_seconds", "count")], rows)


def _gateways(found: Sources) -> Table:
    columns = [Column(name) for name in ("source", "state", "heard_at", "used_until")]
    rows: list[Row] = [
        [item.source, "silent" if item.silent else "alive", item.heard_at, item.used_until, item.missing]
        for item in found.gateways
    ]
    return Table("gateways", [*columns, Column("missing_records", "count")], rows)


def _gaps(found: Sources) -> Table:
    columns = [*(Column(name) for name in ("cluster", "subject", "start", "end")), Column("seconds", "count")]
    rows: list[Row] = [
        [item.cluster, item.subject, item.start, item.end, item.seconds, item.allocations] for item in found.stretches
    ]
    return Table(f"gaps-{found.period.month}", [*columns, Column("open_allocations", "count")], rows)


def _numbers(found: Sources) -> Table:
    columns = [Column("source"), Column("run"), Column("first", "count"), Column("last", "count")]
    rows: list[Row] = [[item.source, item.run, first, last] for item in found.numbered for first, last in item.stretches]
    return Table(f"missing-numbers-{found.period.month}", columns, rows)


def _notes(found: Sources) -> Table:
    columns = [Column(name) for name in ("at", "cluster", "agent", "kind", "subject", "text")]
    rows: list[Row] = [[item.at, item.cluster, item.agent, item.kind, item.subject, item.text] for item in found.notes]
    return Table("not-metered", columns, rows)
