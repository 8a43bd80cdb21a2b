"""Search of documents, the audit log of changes with their actors and reasons, and the rights that people hold."""

from collections.abc import Callable
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
from billing.portal.tables import Cell, Column, Table, columns, download
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.holdings import Holding, holdings
from billing.tenancy.models import AuditEntry, BillingSetup, Membership

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


def _of_person(name: str) -> Callable[[Holding], Cell]:
    return lambda held: getattr(held.person, name) if held.person else None


def _of_token(name: str) -> Callable[[Holding], Cell]:
    return lambda held: getattr(held.token, name) if held.token else None


HELD = [
    Column("user_name", of=_of_person("username")),
    Column("full_name", of=lambda held: held.person.get_full_name() if held.person else ""),
    Column("email", of=_of_person("email")),
    Column("is_active", of=lambda held: str(held.person.is_active).lower() if held.person else ""),
    Column("last_login", of=_of_person("last_login")),
    Column("holds", of="kind"), Column("name"), Column("team", of=lambda held: held.team.code if held.team else ""),
    Column("teams", of=lambda held: ", ".join(held.teams)),
    Column("scopes", of=lambda held: ", ".join(held.token.scopes) if held.token else ""),
    Column("source", of=_of_token("source")), Column("origin"),
    Column("since", of=lambda held: held.since or "unknown"),
    Column("expires_at", of=_of_token("expires_at")), Column("last_used_at", of=_of_token("last_used_at")),
]  # fmt: skip
"""Columns of the file of rights that people hold; `since` is "unknown" where no entry has it."""


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


@page_for(Right.READ_AUDIT)
def who_holds_what(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """List for every person the account, roles and tokens, for which teams, and since when."""
    found = holdings()
    if (file := download(request, {"holdings": lambda: Table.of("holdings", found, HELD)})) is not None:
        return file
    context = {
        "nav": "holdings", "setup": setup, "page": page_shown(request, found), "provider": Membership.Origin.PROVIDER,
        "now": timezone.now(),
    }  # fmt: skip
    return render(request, "portal/holdings.html", context)
