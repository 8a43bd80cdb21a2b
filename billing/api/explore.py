"""Endpoint of the cost explorer: costs and usage by time, groups and comparison."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound, ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.parameters import Endpoint
from billing.explorer.query import COLUMNS, DIMENSIONS, METRICS, PRESETS, SORTS, STEPS, QueryError
from billing.explorer.results import Group
from billing.explorer.selectors import Explored, Explorer, open_window
from billing.rating.freshness import Freshness, freshness
from billing.tenancy.actors import actor_of
from billing.tenancy.models import Team
from billing.tenancy.selectors import NoSetupError, billing_setup
from billing.usage.scope import UsageScope

ANSWER = {
    "type": "object",
    "required": ["from", "to", "zone", "metric", "steps", "total", "groups"],
    "properties": {
        "from": {"type": "string", "format": "date"}, "to": {"type": "string", "format": "date"}, "zone": {"type": "string"},
        "currency": {"type": "string"}, "metric": {"type": "string"}, "preview": {"type": "boolean"},
        "shadow": {"type": "boolean"}, "as_of": {"type": "string", "format": "date-time", "nullable": True},
        "compared": {"type": "object", "nullable": True}, "steps": {"type": "array", "items": {"type": "object"}},
        "total": {"type": "object"}, "groups": {"type": "array", "items": {"type": "object"}},
        "months_missing": {"type": "array", "items": {"type": "string"}}, "unknown": {"type": "object"},
        "unrated": {"type": "array", "items": {"type": "string"}}, "apart": {"type": "string"},
        "begun": {"type": "string", "format": "date", "nullable": True},
        "data_through": {"type": "string", "format": "date-time", "nullable": True}, "missing": {"type": "object"},
    },
}  # fmt: skip
DAYS = (("range",), ("month",), ("from", "to"))
"""Combinations of parameters that select days."""
PARAMETERS = [
    OpenApiParameter("range", str, enum=PRESETS), OpenApiParameter("from", str), OpenApiParameter("to", str),
    OpenApiParameter("month", str), OpenApiParameter("metric", str, enum=METRICS),
    OpenApiParameter("step", str, enum=STEPS),
    OpenApiParameter("by", str, many=True, enum=(*DIMENSIONS, "none")),
    OpenApiParameter("column", str, many=True, enum=(*COLUMNS, "none")), OpenApiParameter("search", str),
    OpenApiParameter("sort", str, enum=(*SORTS, *(f"-{name}" for name in SORTS))),
    *(OpenApiParameter(name, str, many=True) for name in DIMENSIONS),
]  # fmt: skip


class Explore(Endpoint):
    """Figures of the explorer; a token of a team sees that team's."""

    parameters = PARAMETERS
    permission_classes = [has_scope("invoices:read")]

    @extend_schema(
        operation_id="explore",
        description=(
            "Local days of the billing zone, both ends included; each group with its bars by step. Amounts and quantities"
            " are exact decimal strings and equal lines and invoices. `compared` are the days that `before` is of, as many"
            " as have wholly passed; null while metering is silent, and where these days are before `begun`, the first of"
            " which anything can be known. `missing` and `months_missing` name what is in no"
            " figure, in all of the open months, whatever part of them is asked for; `unknown` is what energy and CO2 leave"
            " out: kWh `without_co2`, GPU-hours `without_energy`, `slices_without_energy`."
            " `unrated` are teams of which an open month has no figure. `apart` is in no figure because it is only shown;"
            " where all is only shown (`shadow`), it is late usage of earlier months, credit notes and rebills, which are"
            " charged."
        ),
        responses={200: OpenApiResponse(ANSWER)},
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        try:
            setup = billing_setup()
        except NoSetupError as error:
            raise NotFound(str(error)) from error
        _check_days(request)
        reader, everybody = explorer_of(request)
        try:
            found = reader.explore(reader.asked(request.query_params), everything=True)
        except QueryError as error:
            raise ParseError(str(error)) from error
        fresh = freshness_of(found, reader, everybody=everybody)
        if fresh is None:
            return Response(_answer(found, reader, setup.currency))
        # with data missing, a comparison would show a drop that is none
        shown = found.uncompared if fresh.stale else found
        return Response(_answer(shown, reader, setup.currency) | fresh.as_dict())


def _check_days(request: Request) -> None:
    """Raise ParseError if a query selects days in two ways, of which one would be ignored."""
    ways = [" and ".join(said) for names in DAYS if (said := [name for name in names if name in request.query_params])]
    if len(ways) > 1:
        raise ParseError(f"{', '.join(ways)}: give one of range, month, or from and to")


def explorer_of(request: Request) -> tuple[Explorer, bool]:
    """Return the explorer for the teams of the client, and True if these are all.  Raises NoSetupError."""
    own = actor_of(request).teams()
    teams = dict((Team.objects.filter(is_group=False) if own is None else own).values_list("code", "name"))
    return Explorer(frozenset(teams), timezone.now(), billing_setup().zone, teams), own is None


def freshness_of(found: Explored, reader: Explorer, *, everybody: bool) -> Freshness | None:
    """Return the freshness of the open months, with usage in no figure; None if all are closed, which are complete."""
    window = open_window(found)
    if window is None:
        return None
    scope = UsageScope(None if everybody else frozenset(reader.teams))
    return freshness(scope, window, found.as_of or reader.now, unbilled=found.unbilled)


def _answer(found: Explored, reader: Explorer, currency: str) -> dict[str, Any]:
    query, compared = found.query, found.compared
    return {
        "from": query.first.isoformat(), "to": query.last.isoformat(), "zone": reader.zone, "currency": currency,
        "metric": query.metric, "preview": found.preview, "shadow": found.shadow,
        "as_of": None if found.as_of is None else found.as_of.isoformat(), "months_missing": found.missing,
        "unknown": {name: format(number, "f") for name, number in found.unknown.items()},
        "unrated": list(found.unrated), "apart": format(found.apart, "f"),
        "begun": None if found.begun is None else found.begun.isoformat(),
        "compared": None if compared is None else {"from": compared.first.isoformat(), "to": compared.last.isoformat()},
        "steps": [
            {"from": step.span.first.isoformat(), "to": step.span.last.isoformat(),
             **({"hour": step.name} if step.start else {})}
            for step in found.steps
        ],
        "total": _group(found.total, found),
        "groups": [
            {"names": dict(zip(query.by, group.names, strict=True)), **_group(group, found),
             "bars": [format(bar, "f") for bar in group.bars]}
            for group in found.groups
        ],
    }  # fmt: skip


def _group(group: Group, found: Explored) -> dict[str, Any]:
    columns = [name for name in found.query.columns if name != "share"]
    return {
        name: None if (value := group.cell(name)) is None else format(value, "f") for name in ("total", *columns)
    }  # fmt: skip
