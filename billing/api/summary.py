"""Usage by day, team and model, for external dashboards."""

from datetime import date, timedelta
from glob import escape

from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound, ParseError
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.parameters import Endpoint, asked
from billing.rating.freshness import freshness
from billing.rating.usage_by_day import devices_by_day, tokens_by_day
from billing.tenancy.actors import actor_of
from billing.tenancy.selectors import NoSetupError, billing_setup
from billing.usage.scope import UsageScope
from metering.intervals import Interval, IntervalError, midnight_of

MOST_DAYS = 100
ANSWER = {
    "type": "object",
    "required": ["from", "until", "zone", "tokens", "devices"],
    "properties": {
        "from": {"type": "string", "format": "date"},
        "until": {"type": "string", "format": "date"},
        "zone": {"type": "string"},
        "tokens": {"type": "array", "items": {"type": "object"}},
        "devices": {"type": "array", "items": {"type": "object"}},
        "data_through": {"type": "string", "format": "date-time", "nullable": True},
        "missing": {"type": "object"},
    },
}


class UsageSummary(Endpoint):
    """Tokens and device time from the roll-up; a token of a team sees that team's."""

    parameters = [
        OpenApiParameter("from", str, required=True, description="first day, such as 2026-10-01"),
        OpenApiParameter("until", str, required=True, description=f"day after the last, at most {MOST_DAYS} later"),
        OpenApiParameter("team", str),
        OpenApiParameter("model", str, description="tokens of this model alone; device time, which has none, is left out"),
    ]
    permission_classes = [has_scope("usage:read")]

    @extend_schema(
        operation_id="usage_summary",
        description=(
            "Local days of the billing zone, [from, until). `team` is null where nobody owned the usage then."
            " The figures are complete through `data_through`; `missing` names who reports nothing, and since when."
        ),
        responses={200: OpenApiResponse(ANSWER)},
    )
    def get(self, request: Request) -> Response:
        try:
            zone = billing_setup().zone
        except NoSetupError as error:
            raise NotFound(str(error)) from error
        first, last = _day(request, "from"), _day(request, "until")
        if not timedelta() < last - first <= timedelta(days=MOST_DAYS):
            raise ParseError(f"until {last}: must be 1 to {MOST_DAYS} days after from {first}")
        try:
            window = Interval(*(midnight_of(day, zone) for day in (first, last)))
        except (IntervalError, OverflowError) as error:
            raise ParseError(f"from {first}: is outside the calendar") from error
        teams = _teams(request)
        model = asked(request, "model")
        tokens = tokens_by_day(window, zone, teams, model)
        devices = devices_by_day(window, zone, teams) if model is None else []
        # a scope has patterns, but a query names one model
        scope = UsageScope(None if teams is None else frozenset(teams), model=escape(model or ""))
        return Response(
            {
                **freshness(scope, window, timezone.now()).as_dict(),
                "from": first.isoformat(), "until": last.isoformat(), "zone": zone,
                "tokens": [{"day": row.day, "team": row.team, "model": row.model, **row.counts} for row in tokens],
                "devices": [
                    {"day": row.day, "team": row.team, "accelerator": row.accelerator,
                     "device_seconds": format(row.device_seconds, "f")}
                    for row in devices
                ],
            }
        )  # fmt: skip


def _day(request: Request, name: str) -> date:
    text = asked(request, name) or ""
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ParseError(f"{name} {text[:40]!r}: expected a day such as 2026-10-01") from error


def _teams(request: Request) -> set[str] | None:
    """Return the codes of the teams to show, None for all teams and unowned usage."""
    own, wanted = actor_of(request).teams(), asked(request, "team")
    visible = None if own is None else set(own.values_list("code", flat=True))
    if wanted is None:
        return visible
    return {wanted} if visible is None else visible & {wanted}
