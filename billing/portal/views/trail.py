"""Finding things: any document, and who changed what and why."""

from typing import Any

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from billing.portal.access import page, page_for
from billing.portal.audit_queries import Asked, asked_in, entries, facts_of, kinds, why_of
from billing.portal.documents_found import SHOWN, Found, documents_found
from billing.portal.tables import Column, Table, download
from billing.tenancy.access import Right, teams_visible_to
from billing.tenancy.models import BillingSetup

PAGE_SIZE = 50
IN_A_FILE = 20_000


@require_safe
@page
def search(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Documents by number, team, month, amount or reference outside; every word must fit."""
    wanted = request.GET.get("q", "").strip()
    found = documents_found(teams_visible_to(request.user), wanted)
    if (file := download(request, {"documents": lambda: _documents(found)})) is not None:
        return file
    context = {"nav": "search", "setup": setup, "q": wanted, "found": found, "most": SHOWN}
    return render(request, "portal/search.html", context)


def _documents(found: list[Found]) -> Table:
    columns = [
        Column("kind"), Column("number"), Column("team"), Column("month"), Column("status"), Column("total", "money"),
        Column("issued_at"),
    ]  # fmt: skip
    return Table(
        "documents", columns,
        [[item.kind, item.number, item.team.code, item.month, item.status, item.total, item.issued_at] for item in found],
    )  # fmt: skip


@require_safe
@page_for(Right.READ_AUDIT)
def audit(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """The audit log under filters, with before and after."""
    asked = asked_in(request.GET)
    if (file := download(request, {"audit": lambda: _log(asked, setup)})) is not None:
        return file
    pages = Paginator(entries(asked, setup.zone), PAGE_SIZE).get_page(request.GET.get("page"))
    rows: list[dict[str, Any]] = [
        {"entry": entry, "why": why_of(entry), "facts": facts_of(entry)} for entry in pages.object_list
    ]
    context = {"nav": "audit", "setup": setup, "asked": asked, "page": pages, "rows": rows, "kinds": kinds()}
    return render(request, "portal/audit.html", context, status=400 if asked.wrong else 200)


def _log(asked: Asked, setup: BillingSetup) -> Table:
    names = ("id", "at", "actor", "action", "subject", "why", "changes")
    columns = [Column(names[0], "count"), *(Column(name) for name in names[1:])]
    return Table(
        "audit", columns,
        [
            [entry.pk, entry.at, entry.actor, entry.action, entry.subject, why_of(entry),
             "; ".join(f"{name}: {old} -> {new}" if old else f"{name}: {new}" for name, old, new in facts_of(entry))]
            for entry in entries(asked, setup.zone)[:IN_A_FILE]
        ],
    )  # fmt: skip
