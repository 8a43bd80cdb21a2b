"""Spending board: costs of a month by split, forecast, change from the month before, use by hour, and wasteful jobs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from django.db.models import Q, QuerySet
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.utils.dates import WEEKDAYS_ABBR

from billing.portal.access import page
from billing.portal.asked import chosen
from billing.portal.board import OFFERED, Board, TooManyJobsError
from billing.portal.charts import bridge_chart
from billing.portal.filters import Filters
from billing.portal.htmx import HtmxRequest
from billing.portal.months import month_choice
from billing.portal.splits import NAMES, SplitRow, first_rows, split, whole_lines
from billing.portal.statements import month_facets, sections_shown
from billing.portal.tables import BY_SECTION, Column, Table, columns, constant, download
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup, Team
from metering.intervals import previous_month
from metering.messages import Message
from pricing.meters import SECTIONS

DRILL = {"team": "namespace", "site": "namespace", "namespace": "workload", "accelerator": "namespace", "model": "consumer",
         "consumer": "model", "queue": "workload"}
"""Split that a click on a row shows next, with the row's name as a filter."""
ITEMS_SHOWN = 8


@page
def board(request: HtmxRequest, setup: BillingSetup) -> HttpResponse:
    """Show a month under filters, one split at a time; a `part` (why, end, hours) is loaded after the page.

    `then`: the part that a late part requests in its turn, below itself, so that no part pushes another down.
    """
    filters, teams = _asked(Filters.of(request.GET), teams_visible_to(request.user))
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    month = month_facets(choice.period, teams)
    everybody = access_of(request.user).may(Right.READ)
    shown = Board(choice.period, setup, teams, filters, month, timezone.now(), "as" in request.GET, everybody)
    by, part = chosen(request, "by", NAMES, "namespace" if filters.team else "team"), chosen(request, "part", PARTS)
    if (file := download(request, _tables(shown, by), shown.fresh if "as" in request.GET else None)) is not None:
        return file
    common = {
        "nav": "board", "setup": setup, "choice": choice, "period": choice.period, "board": shown, "filters": filters,
        "fresh": shown.fresh,
        "before": previous_month(choice.month), "as_of": month.as_of, "then": chosen(request, "then", PARTS),
    }  # fmt: skip
    if part:
        name = f"portal/parts/board_{part}.html" if request.htmx else "portal/board_part.html"
        return render(request, name, common | PARTS[part](shown) | {"part": f"portal/parts/board_{part}.html"})
    team_options = _team_options(request)
    options = [(name, values, getattr(filters, name)) for name, values in shown.options().items()]
    common |= {"by": by, "tabs": list(NAMES), "options": options, "team_options": team_options}
    try:
        looked = _first_look(shown, by)
    except TooManyJobsError:
        looked = {"narrow": first_rows(split(whole_lines(shown.sums), "team"))[0]}
    listed = looked.get("narrow") or (looked.get("rows", []) if by == "team" else [])
    names = _names(listed, team_options) if listed else {}
    return render(request, "portal/board.html", common | looked | {"team_names": names})


def _asked(filters: Filters, teams: QuerySet[Team]) -> tuple[Filters, QuerySet[Team]]:
    """Return the filters with the team by its code, and the teams that they select.  Raises Http404.

    A team that the user may not see is answered like one that does not exist.
    """
    if not filters.team:
        return filters, teams
    named = Q(name__iexact=filters.team) | Q(cost_center__iexact=filters.team) | Q(code__iexact=filters.team)
    # two are enough to know that a name is ambiguous
    found = list(teams.filter(code=filters.team)) or list(teams.filter(named)[:2])
    if len(found) != 1:
        raise Http404(Message("team %(team)s: there is no one team of that name that you may see", team=repr(filters.team)))
    return replace(filters, team=found[0].code), teams.filter(pk=found[0].pk)


def _team_options(request: HttpRequest) -> list[Team] | None:
    """Return the teams to choose from; None if there are so many that a code or a name is typed."""
    # one more than is offered shows that there are too many
    teams = list(teams_visible_to(request.user).order_by("code")[: OFFERED + 1])
    return teams if len(teams) <= OFFERED else None


def _names(rows: Sequence[SplitRow], known: Sequence[Team] | None) -> dict[str, str]:
    """Return the names of the teams that a page lists by code; `known`: all teams that it offers, unless too many."""
    if known is not None:
        return {team.code: team.name for team in known if team.name}
    named = Team.objects.filter(code__in=[row.label for row in rows]).exclude(name="")
    return dict(named.values_list("code", "name"))


def _first_look(shown: Board, by: str) -> dict[str, Any]:
    rows = shown.rows(by)
    first, rest, left_out = first_rows(rows)
    sums = {name: sum((row.parts[name] for row in rows), Decimal("0.00")) for name in SECTIONS}
    return {
        "rows": first, "rest": rest, "left_out": left_out, "drill": DRILL.get(by, ""),
        "largest": max((row.gpu + row.tokens for row in rows), default=None),
        "total": shown.total, "last": shown.last_month(), "wasting": shown.wasting(),
        "sums": sums, "sections": sections_shown(row.parts for row in rows),
    }  # fmt: skip


def _why(shown: Board) -> dict[str, Any]:
    try:
        bridge = shown.bridge()
    except TooManyJobsError:
        bridge = None
    items = [] if bridge is None else bridge.largest(ITEMS_SHOWN)
    return {
        "bridge": bridge, "items": items, "until": shown.compared_until,
        "bridge_chart": None if bridge is None else bridge_chart(bridge, shown.setup.currency),
    }  # fmt: skip


def _hours(shown: Board) -> dict[str, Any]:
    heat = [(item, [(WEEKDAYS_ABBR[day], cells) for day, cells in enumerate(item.days)]) for item in shown.heat()]
    return {"heat": heat, "kept_use": shown.kept_use}


PARTS: dict[str, Callable[[Board], dict[str, Any]]] = {
    "why": _why, "end": lambda shown: {"expected": shown.expected()}, "hours": _hours
}  # fmt: skip


def _tables(shown: Board, by: str) -> dict[str, Callable[[], Table]]:
    month = shown.period.month
    amounts = [*BY_SECTION, Column("total", "money")]
    return {
        "split": lambda: Table.of(
            f"spending-by-{by}-{month}", shown.rows(by), [constant("month", month), Column(by, of="label"), *amounts]
        ),
        "why": lambda: Table.of(f"change-to-{month}", bridge.items if (bridge := shown.bridge()) else [], CHANGE),
        "effects": lambda: Table.of(f"effects-to-{month}", bridge.steps if (bridge := shown.bridge()) else [], EFFECT),
        "hours": lambda: Table(f"use-by-hour-{month}", HOUR, [
            [heat.name, day, cell.hour, cell.mean]
            for heat in shown.heat()
            for day, cells in enumerate(heat.days, start=1)
            for cell in cells
        ]),
        "wasting": lambda: Table.of(f"wasting-jobs-{month}", shown.wasting(), WASTING),
    }  # fmt: skip


CHANGE = [
    *columns("team", "kind", "sku", "token_class"), *columns("before", "after", look="money"),
    Column("price_effect", "money", "price"), Column("usage_effect", "money", "usage"), Column("change", "money"),
]  # fmt: skip
EFFECT = [Column("effect", of="name"), Column("amount", "money")]
HOUR = [Column("use"), *columns("weekday", "hour", look="count"), Column("mean", "quantity")]
WASTING = [
    *columns("team", "cluster", "namespace", "job"), *columns("mfu", "hfu", look="ratio"),
    Column("gpu_seconds", "quantity"), Column("wasted_gpu_seconds", "quantity", "wasted"), Column("reason"),
    Column("effect", "money"),
]  # fmt: skip
