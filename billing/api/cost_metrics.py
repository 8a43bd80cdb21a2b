"""Costs and budgets as Prometheus metrics: `GET /api/v1/metrics`, for the teams of the token.

The figures are those of `GET explore` and `GET budgets`, read by the same code. A sample is a binary float: amounts of more
than 15 digits are rounded, so what is booked or compared to the cent comes from these endpoints.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from django.http import HttpResponse, QueryDict
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from rest_framework.exceptions import NotFound
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from billing.api.budgets import BudgetSerializer
from billing.api.explore import explorer_of, freshness_of
from billing.api.parameters import MONTH, Endpoint, asked_month, rows_seen
from billing.budgets.models import Budget
from billing.explorer.query import Query
from billing.explorer.results import Group
from billing.explorer.selectors import Explored
from billing.tenancy.actors import actor_of
from billing.tenancy.selectors import NoSetupError, billing_setup

SPEND_SCOPE: Final = "invoices:read"
BUDGET_SCOPE: Final = "budgets:read"
SPEND_BY: Final = ("team", "kind", "model", "accelerator")
BUDGET_LABELS: Final = (
    "id", "team", "name", "period", "cluster", "namespace", "consumer", "accelerator", "model", "currency",
)  # fmt: skip
BUDGET_SAMPLES: Final[Mapping[str, tuple[str, str]]] = {
    "amount": ("suanpan_budget_amount", "amount of the budget in its current period"),
    "spent": ("suanpan_budget_spent", "amount spent in the period"),
    "remaining": ("suanpan_budget_remaining", "amount minus spent"),
    "forecast_p10": ("suanpan_budget_forecast_p10", "low end of what is expected for the end of the period"),
    "forecast_p50": ("suanpan_budget_forecast", "amount that is expected for the end of the period"),
    "forecast_p90": ("suanpan_budget_forecast_p90", "high end of what is expected for the end of the period"),
    "as_of": ("suanpan_budget_as_of_timestamp_seconds", "when the amount spent was summed"),
    "data_through": ("suanpan_budget_data_through_timestamp_seconds", "through when the usage in it is complete"),
}


class ReadsFigures(BasePermission):
    """Permission for a token that may read costs or budgets; each family needs its own scope."""

    message = f"this needs the scope {SPEND_SCOPE} or {BUDGET_SCOPE}"

    def has_permission(self, request: Request, view: Any) -> bool:
        actor = actor_of(request)
        return actor.has(SPEND_SCOPE) or actor.has(BUDGET_SCOPE)


class AnyAccept(DefaultContentNegotiation):
    """Negotiation that disregards the Accept header: the answer is the text format of Prometheus for everyone."""

    def get_accept_list(self, request: Request) -> list[str]:
        return ["*/*"]


class CostMetrics(Endpoint):
    """Metrics of costs and budgets; a token of a team sees that team's."""

    parameters = [MONTH]
    permission_classes = [ReadsFigures]
    content_negotiation_class = AnyAccept

    @extend_schema(
        operation_id="metrics",
        description=(
            "Text format of Prometheus. Costs are of the month, by default the running one; budgets of their current period."
            " Costs need the scope invoices:read, budgets budgets:read. A figure that is not known has no sample."
            " suanpan_spend_data_through_timestamp_seconds says through when usage is complete, suanpan_spend_left_out what"
            " is in no figure."
        ),
        responses={(200, "text/plain"): OpenApiResponse(OpenApiTypes.STR)},
    )
    def get(self, request: Request) -> HttpResponse:
        try:
            currency = billing_setup().currency
        except NoSetupError as error:
            raise NotFound(str(error)) from error
        registry = CollectorRegistry(auto_describe=False)
        actor = actor_of(request)
        month = asked_month(request)
        if actor.has(SPEND_SCOPE):
            registry.register(_Collected(list(_costs(request, month, currency))))
        if actor.has(BUDGET_SCOPE):
            registry.register(_Collected(list(_budgets(request, currency))))
        return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class _Collected(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


def _costs(request: Request, month: str | None, currency: str) -> Iterator[Metric]:
    """Yield the costs and usage of a month, with their freshness."""
    reader, everybody = explorer_of(request)
    query = replace(reader.asked(QueryDict(f"month={month}" if month else "range=this-month")), step="month", columns=())
    month = query.span.month
    spent = reader.explore(replace(query, by=SPEND_BY), everything=True)
    mode = "showback" if spent.shadow else "charged"
    yield _family(
        "suanpan_spend", "cost of the month so far; late usage and credit notes are kinds of their own",
        ("month", "mode", *SPEND_BY, "currency"),
        [((month, mode, *group.names, currency), group.total) for group in spent.groups],
    )  # fmt: skip
    yield _family(
        "suanpan_spend_apart", "amount in no sample: showback, or where the mode is showback, what is charged",
        ("month", "mode", "currency"), [((month, mode, currency), spent.apart)],
    )  # fmt: skip
    tokens = _by_sku(reader.explore(_unit_costs(query, "model", "tokens", "per_1m_tokens"), everything=True))
    labels = ("month", "mode", "team", "model")
    yield _family(
        "suanpan_tokens", "tokens of the month so far", labels,
        [((month, mode, *one.names), one.sums["tokens"]) for one in tokens if one.sums["tokens"]],
    )  # fmt: skip
    yield _family(
        "suanpan_price_per_million_tokens", "cost of a million tokens in the month so far", (*labels, "currency"),
        [((month, mode, *one.names, currency), one.cell("per_1m_tokens")) for one in tokens],
    )  # fmt: skip
    hours = _by_sku(reader.explore(_unit_costs(query, "accelerator", "gpu_hours", "per_gpu_hour"), everything=True))
    labels = ("month", "mode", "team", "accelerator")
    yield _family(
        "suanpan_gpu_hours", "GPU-hours of the month so far", labels,
        [((month, mode, *one.names), one.sums["gpu_hours"]) for one in hours if one.sums["gpu_hours"]],
    )  # fmt: skip
    yield _family(
        "suanpan_price_per_gpu_hour", "cost of the month so far by GPU-hour", (*labels, "currency"),
        [((month, mode, *one.names, currency), one.cell("per_gpu_hour")) for one in hours],
    )  # fmt: skip
    fresh = freshness_of(spent, reader, everybody=everybody)
    through = fresh.data_through if fresh else None
    yield _family(
        "suanpan_spend_as_of_timestamp_seconds", "when the costs of an open month were rated", ("month",),
        [((month,), spent.as_of)],
    )  # fmt: skip
    yield _family(
        "suanpan_spend_data_through_timestamp_seconds", "through when the usage of an open month is complete", ("month",),
        [((month,), through)],
    )  # fmt: skip
    left_out = {
        "month": len(spent.missing), "team": len(spent.unrated), "silent": len(fresh.silent) if fresh else 0,
        "gap": len(fresh.gaps) if fresh else 0, "unbilled": len(fresh.unbilled) if fresh else 0,
    }  # fmt: skip
    yield _family(
        "suanpan_spend_left_out",
        "what is in no figure: months and teams that are not rated, silent reporters, gaps, and kinds of unbilled usage",
        ("month", "what"), [((month, what), Decimal(number)) for what, number in left_out.items()],
    )  # fmt: skip


def _unit_costs(query: Query, dimension: str, *columns: str) -> Query:
    return replace(query, by=("team", dimension), columns=columns)


def _by_sku(found: Explored) -> list[Group]:
    """Return the groups that have a model or an accelerator."""
    return [group for group in found.groups if group.names[1]]


def _budgets(request: Request, currency: str) -> Iterator[Metric]:
    """Yield the budgets of the client's teams in their current period, as `GET budgets` shows them."""
    rows = rows_seen(Budget.objects.select_related("team").order_by("team__code", "id"), request, team="team__code")
    shown = [
        ({**facts, "period": standing["period"], "currency": currency}, standing)
        for facts in BudgetSerializer(rows, many=True).data if (standing := facts["standing"])
    ]  # fmt: skip
    for field, (name, text) in BUDGET_SAMPLES.items():
        samples = [
            (tuple(str(facts[label]) for label in BUDGET_LABELS), _number(standing[field])) for facts, standing in shown
        ]
        yield _family(name, text, BUDGET_LABELS, samples)


def _number(value: str | datetime | None) -> Decimal | datetime | None:
    return Decimal(value) if isinstance(value, str) else value


def _family(
    name: str, text: str, labels: tuple[str, ...], samples: list[tuple[tuple[str, ...], Decimal | datetime | None]]
) -> Metric:
    """Build a gauge of the samples that have a value."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for names, value in samples:
        if value is not None:
            family.add_metric(names, value.timestamp() if isinstance(value, datetime) else float(value))
    return family
