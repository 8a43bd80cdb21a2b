"""Search of documents, and the audit log of changes with their actors and reasons."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from billing.portal.access import page, page_for
from billing.portal.asked import page_shown
from billing.portal.audit_queries import asked_in, entries, facts_of, kinds, why_of
from billing.portal.document_search import SHOWN, documents_matching
from billing.portal.htmx import HtmxRequest
from billing.portal.navigation import menu_of
from billing.portal.quick_search import FEWEST, everything_matching
from billing.portal.tables import Column, Table, columns, download
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import AuditEntry, BillingSetup

IN_A_FILE = 20_000
DOCUMENT = [
    *columns("kind", "number"), Column("team", of="team.code"), *columns("month", "status"), Column("total", "money"),
    Column("issued_at"),
]  # fmt: skip


def _changes(entry: AuditEntry) -> str:
    return "; ".join(f"{name}: {old} -> {new}" if old else f"{name}: {new}" for name, old, new in facts_of(entry))


ENTRY = [
    Column("id", "count"), *columns("at", "actor", "action", "subject"), Column("why", of=why_of),
    Column("changes", of=_changes),
]  # fmt: skip


@page
def search(request: HtmxRequest, setup: BillingSetup) -> HttpResponse:
    """Search documents by number, team, month, amount or external reference; every word must match.

    With htmx the search of every page gets a part: a few hits of every kind that its reader may see.
    """
    wanted = request.GET.get("q", "").strip()
    if request.htmx:
        return _everything(request, setup, wanted)
    found = documents_matching(teams_visible_to(request.user), wanted)
    if (file := download(request, {"documents": lambda: Table.of("documents", found, DOCUMENT)})) is not None:
        return file
    context = {"nav": "search", "setup": setup, "q": wanted, "found": found, "most": SHOWN}
    return render(request, "portal/search.html", context)


def _everything(request: HttpRequest, setup: BillingSetup, wanted: str) -> HttpResponse:
    found = everything_matching(
        wanted, menu=menu_of(access_of(request.user).granted), teams=teams_visible_to(request.user), now=timezone.now(),
        zone=setup.zone,
    )  # fmt: skip
    context = {"q": wanted, "found": found, "fewest": FEWEST, "number": sum(len(hits.shown) for hits in found)}
    return render(request, "portal/parts/found.html", context)


@page_for(Right.READ_AUDIT)
def audit(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the audit log under filters, with before and after."""
    asked = asked_in(request.GET)
    found = entries(asked, setup.zone)
    if (file := download(request, {"audit": lambda: Table.of("audit", found[:IN_A_FILE], ENTRY)})) is not None:
        return file
    pages = page_shown(request, found)
    rows: list[dict[str, Any]] = [
        {"entry": entry, "why": why_of(entry), "facts": facts_of(entry)} for entry in pages.object_list
    ]
    context = {"nav": "audit", "setup": setup, "asked": asked, "page": pages, "rows": rows, "kinds": kinds()}
    return render(request, "portal/audit.html", context, status=400 if asked.wrong else 200)
