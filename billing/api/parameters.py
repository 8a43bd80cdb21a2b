"""Inputs of endpoints: parameters of the query, fields of a body, and the teams that the client may see."""

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from django.db.models import Model, QuerySet
from django.http import Http404
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter
from rest_framework.exceptions import ParseError, PermissionDenied, ValidationError
from rest_framework.permissions import SAFE_METHODS
from rest_framework.request import Request
from rest_framework.serializers import Serializer
from rest_framework.settings import api_settings
from rest_framework.views import APIView

from billing.api.bodies import ExactJsonParser
from billing.tenancy.actors import actor_of
from metering.intervals import IntervalError, billing_month

Row = TypeVar("Row", bound=Model)
MONTH = OpenApiParameter("month", str, description="billing month such as 2026-10")
TEAM = OpenApiParameter("team", str, description="team code")
LONGEST_SHOWN = 40
"""Characters of a name or a value that an error repeats."""


class EndpointSchema(AutoSchema):
    """Description of the parameters of an `Endpoint`, from the list against which it checks a request."""

    def get_override_parameters(self) -> list[Any]:
        return [*getattr(self.view, "parameters", ())] if self.method == "GET" else []


class Endpoint(APIView):
    """Base of endpoints whose query has only the described `parameters`, each at most once and never empty.

    With a mistyped or empty filter a client would take the figures of everybody for those of one team.
    """

    schema = EndpointSchema()
    parser_classes = [ExactJsonParser]
    parameters: ClassVar[Sequence[OpenApiParameter]] = ()
    """Parameters of a GET; a list also has those of its pages, and each endpoint the `format` of its answer."""

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if any("\0" in str(value) for value in kwargs.values()):
            raise Http404  # no name or month has a NUL, which PostgreSQL cannot compare
        if request.method in SAFE_METHODS:
            self._check_query(request)

    def perform_content_negotiation(self, request: Request, force: bool = False) -> Any:
        try:
            return super().perform_content_negotiation(request, force)
        except Http404 as error:
            known = [str(renderer.format) for renderer in self.get_renderers()]
            raise ParseError(_none_of("format", str(request.query_params["format"]), known)) from error

    def _check_query(self, request: Request) -> None:
        """Raise ParseError with the name and the value at fault."""
        known = {parameter.name: parameter for parameter in self.parameters}
        pages = getattr(self, "paginator", None)
        names = {*known, *([pages.page_query_param, pages.page_size_query_param] if pages else [])}
        for name, values in request.query_params.lists():
            if name == api_settings.URL_FORMAT_OVERRIDE:
                continue
            if name not in names:
                only = f"only {', '.join(sorted(names))}" if names else "and no other"
                raise ParseError(f"{name[:LONGEST_SHOWN]!r}: this endpoint has no such parameter, {only}")
            _check_values(name, values, known.get(name))
        if pages:
            pages.get_page_size(request)


def _check_values(name: str, values: list[str], known: OpenApiParameter | None) -> None:
    if len(values) > 1 and not (known and known.many):
        given = ", ".join(repr(value[:LONGEST_SHOWN]) for value in values[:9])
        raise ParseError(f"{name} is given {len(values)} times: {given}")
    for value in values:
        if not value.strip():
            raise ParseError(f"{name} {value!r} is empty: leave it out, or say which")
        if "\0" in value:  # which PostgreSQL cannot compare
            raise ParseError(f"{name} {value[:LONGEST_SHOWN]!r} contains a NUL character")
        if known and known.enum and value not in known.enum:
            raise ParseError(_none_of(name, value, known.enum))


def _none_of(name: str, value: str, known: Sequence[str]) -> str:
    return f"{name} {value[:LONGEST_SHOWN]!r}: one of {', '.join(known)}"


def asked(request: Request, name: str) -> str | None:
    """Return a query parameter of an `Endpoint`."""
    value: str | None = request.query_params.get(name)
    return value


def asked_month(request: Request) -> str | None:
    """Return the month of the query.  Raises ParseError for an invalid month."""
    value = asked(request, "month")
    try:
        if value:
            billing_month(value, "UTC")
    except IntervalError as error:
        raise ParseError(str(error)) from error
    return value


def facts_of(body: type[Serializer[Any]], request: Request) -> dict[str, Any]:
    """Return the validated fields of a body.  Raises ValidationError, also for an unknown field."""
    read = body(data=request.data)
    read.is_valid(raise_exception=True)
    if unknown := sorted(request.data.keys() - read.fields.keys()):
        only = f"there is no such field, only {', '.join(read.fields)}"
        raise ValidationError({name[:LONGEST_SHOWN]: [only] for name in unknown[:LONGEST_SHOWN]})
    facts: dict[str, Any] = read.validated_data
    return facts


def rows_seen(rows: QuerySet[Row], request: Request, *, team: str, month: str = "") -> QuerySet[Row]:
    """Return rows of the teams that the client may see, and of the `team` and `month` of its query.

    `team`, `month`: the lookups of a team's code and of a month.  Raises ParseError for an invalid month.
    """
    own = actor_of(request).teams()
    if own is not None:
        rows = rows.filter(**{f"{team}__in": list(own.values_list("code", flat=True))})
    if code := asked(request, "team"):
        rows = rows.filter(**{team: code})
    if month and (wanted := asked_month(request)):
        rows = rows.filter(**{month: wanted})
    return rows


def sees_all_teams(request: Request, why: str) -> None:
    """Raise PermissionDenied for a token or person of some teams only."""
    if actor_of(request).teams() is not None:
        raise PermissionDenied(f"{why}: this needs a token that is bound to none")
