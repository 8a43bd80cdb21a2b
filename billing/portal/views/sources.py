"""Agents and sources: the state of each, the end of its reports, and gaps of metering."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.portal.access import staff_page
from billing.portal.months import month_choice
from billing.portal.sources import Sources
from billing.portal.tables import Column, Row, Table, columns, download
from billing.tenancy.models import BillingSetup

STATE = Column("state", of=lambda item: "silent" if item.silent else "behind" if item.behind else "alive")
AGENT = [Column("agent", of="name"), Column("source"), STATE, *columns("heard_at", "watermark"),
         Column("lag_seconds", "count", "lag")]  # fmt: skip
GATEWAY = [Column("source"), STATE, *columns("heard_at", "used_until"), Column("missing_records", "count", "missing")]
GAP = [*columns("cluster", "subject", "start", "end"), Column("seconds", "count"),
       Column("open_allocations", "count", "allocations")]  # fmt: skip
NOTE = columns("at", "cluster", "agent", "kind", "subject", "text")


@staff_page
def sources(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    now = timezone.now()
    choice = month_choice(request.GET.get("month", ""), setup, now)
    found = Sources(choice.period, now)
    tables = {
        "agents": lambda: Table.of("agents", found.agents, AGENT),
        "gateways": lambda: Table.of("gateways", found.gateways, GATEWAY),
        "gaps": lambda: Table.of(f"gaps-{found.period.month}", found.stretches, GAP),
        "numbers": lambda: _numbers(found), "notes": lambda: Table.of("not-metered", found.notes, NOTE),
    }  # fmt: skip
    if (file := download(request, tables)) is not None:
        return file
    context = {"nav": "sources", "setup": setup, "choice": choice, "period": choice.period, "found": found, "as_of": now}
    return render(request, "portal/sources.html", context)


def _numbers(found: Sources) -> Table:
    facts = [Column("source"), Column("run"), Column("first", "count"), Column("last", "count")]
    rows: list[Row] = [[item.source, item.run, first, last] for item in found.numbered for first, last in item.stretches]
    return Table(f"missing-numbers-{found.period.month}", facts, rows)
