"""What endpoints read of a request: parameters of the query, the facts of a body, and which teams the client may see."""

from collections.abc import Collection
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ParseError, PermissionDenied
from rest_framework.request import Request
from rest_framework.serializers import BaseSerializer

from billing.tenancy.actors import actor_of
from metering.intervals import IntervalError, billing_month

Row = TypeVar("Row", bound=Model)
MONTH = OpenApiParameter("month", str, description="billing month such as 2026-10")
TEAM = OpenApiParameter("team", str, description="team code")


def asked(request: Request, name: str, among: Collection[str] = ()) -> str | None:
    """A query parameter, one of those it is `among`; NUL, which PostgreSQL cannot compare with, is refused."""
    value: str | None = request.query_params.get(name)
    if value is not None and "\0" in value:
        raise ParseError(f"{name} contains a NUL character")
    if value and among and value not in among:
        raise ParseError(f"{name} {value!r} is none of {', '.join(among)}")
    return value


def _asked_month(request: Request) -> str | None:
    value = asked(request, "month")
    try:
        if value:
            billing_month(value, "UTC")
    except IntervalError as error:
        raise ParseError(str(error)) from error
    return value


def facts_of(body: type[BaseSerializer[Any]], request: Request) -> dict[str, Any]:
    """The validated fields of a body.  Raises ValidationError."""
    read = body(data=request.data)
    read.is_valid(raise_exception=True)
    facts: dict[str, Any] = read.validated_data
    return facts


def rows_seen(rows: QuerySet[Row], request: Request, *, team: str, month: str = "") -> QuerySet[Row]:
    """Rows of the teams that the client may see, and of the `team` and `month` of its query.

    `team`, `month`: the lookups of a team's code and of a month.  Raises ParseError for what is no month.
    """
    own = actor_of(request).teams()
    if own is not None:
        rows = rows.filter(**{f"{team}__in": list(own.values_list("code", flat=True))})
    if code := asked(request, "team"):
        rows = rows.filter(**{team: code})
    if month and (wanted := _asked_month(request)):
        rows = rows.filter(**{month: wanted})
    return rows


def sees_all_teams(request: Request, why: str) -> None:
    """Raise PermissionDenied for a token or person of some teams only."""
    if actor_of(request).teams() is not None:
        raise PermissionDenied(f"{why}: this needs a token that is bound to none")
