"""Cost explorer, the first page of finance and of teams: costs by any dimension and time, with a comparison."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from billing.explorer.labels import DIMENSION
from billing.explorer.query import DIMENSIONS, QueryError
from billing.explorer.selectors import Explored, Explorer, open_window
from billing.explorer.services import views_seen
from billing.portal.access import page, reader_of
from billing.portal.asked import chosen
from billing.portal.explorer_files import groups_table, series_table
from billing.portal.explorer_outlook import Outlook
from billing.portal.explorer_page import ExplorerPage
from billing.portal.explorer_why import BY as WHY_BY
from billing.portal.explorer_why import Why
from billing.portal.fresh import asked_at, metering, scope_seen, window_freshness
from billing.portal.htmx import HtmxRequest
from billing.portal.tables import download
from billing.portal.views.overview import overview, unbilled_table
from billing.rating.freshness import Freshness
from billing.tenancy.access import teams_visible_to
from billing.tenancy.models import BillingSetup
from billing.usage.scope import UsageScope

VIEWS_SHOWN = 8
FEWEST = timedelta(days=2)
"""Time of the running month that must be complete before the page opens with that month."""
OFFERED = 200
"""Most names of a filter that are offered as choices; above it a name is typed."""


@require_safe
@login_required
def home(request: HttpRequest) -> HttpResponseBase:
    """Redirect to the explorer; an address of older links, with a month or a search, is still the overview."""
    return overview(request) if request.GET else redirect("portal:explorer")


@page
def explorer(request: HtmxRequest, setup: BillingSetup) -> HttpResponse:
    """Show the answer to the address; `part`: names of filters, the forecast of the month, or the reasons of a change."""
    teams = dict(teams_visible_to(request.user).order_by("code").values_list("code", "name"))
    reader = Explorer(frozenset(teams), asked_at(request), setup.zone, teams)
    part = chosen(request, "part", ("filters", "why", "outlook"))
    everything = "as" in request.GET and bool(request.GET.get("table"))
    by = ("team",) if len(teams) > 1 else ("namespace",)
    try:
        found = reader.answer(request.GET, by=by, usual=_usual_range(request, setup.zone), everything=everything)
    except QueryError as error:
        raise Http404(error.message) from error
    query = found.query
    if part == "filters":
        return _filters(request, reader, ExplorerPage(found, teams, setup.currency))
    fresh = _fresh(request, found, reader)
    stale = fresh is not None and fresh.stale
    found = found.uncompared if stale else found
    tables = {
        "groups": lambda: groups_table(found, teams), "series": lambda: series_table(found, teams),
        "unbilled": lambda: unbilled_table(found.open_months, fresh),
    }  # fmt: skip
    if (file := download(request, tables, fresh)) is not None:
        return file
    shown = ExplorerPage(found, teams, setup.currency, stale=stale)
    outlook = Outlook.of(found, reader)
    if part == "why":
        return _why(request, shown, reader)
    late = part == "outlook"
    if late and outlook is not None:
        outlook = outlook.forecast(reader, silent=shown.stale)
    shown = replace(shown, outlook=outlook)
    context = {
        "nav": "explorer", "setup": setup, "page": shown, "found": found, "query": query, "fresh": fresh,
        "as_of": found.as_of, "month": found, "teams": teams, "outlook": outlook,
        "views": [] if late else views_seen(reader_of(request))[:VIEWS_SHOWN],
        "controls": shown.kept("range", "metric", "by", "step", "search"),
        "dated": shown.kept("range", "from", "to", "step"), "columned": shown.kept("column"),
    }  # fmt: skip
    return render(request, "portal/parts/explorer_outlook.html" if late else "portal/explorer.html", context)


def _why(request: HttpRequest, shown: ExplorerPage, reader: Explorer) -> HttpResponse:
    """Show the reasons of a change, split as in the address, else by a dimension of the answer."""
    usual = next((name for name in shown.query.by if name in WHY_BY), "team" if len(reader.teams) > 1 else "namespace")
    why = Why.of(shown.found, reader, chosen(request, "why", WHY_BY, usual))
    return render(request, "portal/parts/explorer_why.html", {"why": why, "page": shown, "query": shown.query})


def _usual_range(request: HttpRequest, zone: str) -> str:
    """Return the running month once some days of it are complete, before that the month before."""
    fresh = metering(request, zone)
    known = fresh is not None and fresh.data_through is not None and fresh.data_through >= fresh.window.start + FEWEST
    return "this-month" if known else "last-month"


def _fresh(request: HttpRequest, found: Explored, reader: Explorer) -> Freshness | None:
    """Return freshness and completeness of the answer's open months; None if all are closed."""
    window = open_window(found)
    if window is None:
        return None
    asked = frozenset(found.query.filter.get("team", ())) & frozenset(reader.teams)
    scope = UsageScope(asked) if asked else scope_seen(request)
    return window_freshness(request, window, scope, unbilled=found.unbilled, as_of=found.as_of)


def _filters(request: HtmxRequest, reader: Explorer, shown: ExplorerPage) -> HttpResponse:
    """Show a field for each dimension, with the names that it has in the range."""
    names = reader.options(shown.query, DIMENSIONS, OFFERED)
    fields: list[dict[str, Any]] = [
        {"name": name, "label": DIMENSION[name], "values": names[name], "chosen": (shown.query.filter.get(name) or ("",))[0]}
        for name in DIMENSIONS
        if names[name] is None or names[name] or name in shown.query.filter
    ]
    context = {"page": shown, "fields": fields, "kept": shown.kept(*(field["name"] for field in fields))}
    return render(request, "portal/parts/explorer_filters.html", context)
