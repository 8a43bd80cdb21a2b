"""Endpoints of budgets: the list, and the check with its reservations."""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, cast

import msgspec
from django.db.models import QuerySet
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import (
    OpenApiParameter,
    extend_schema,
    extend_schema_field,
    inline_serializer,
)
from rest_framework import serializers
from rest_framework.authentication import SessionAuthentication
from rest_framework.generics import ListAPIView
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from billing.api.authentication import ApiTokenAuthentication, TokenUser, has_scope, token_of
from billing.api.budget_check import (
    MOST_BODY,
    QUESTION,
    QUESTION_HEADERS,
    SCOPE,
    budget_authorize,
    budget_check,
    gateway_credentials,
    read_fields,
    read_query,
    reservation_release,
)
from billing.api.parameters import TEAM, Endpoint, rows_seen
from billing.api.problems import PROBLEM_JSON
from billing.api.usage import AnyBody
from billing.budgets.expected import expected_by
from billing.budgets.models import Budget
from billing.budgets.selectors import status_now
from billing.tenancy.actors import actor_of
from billing.tenancy.models import ApiToken


class StandingSerializer(serializers.Serializer[Any]):
    """Status of a budget in the current period; amounts are decimal strings, null if unknown."""

    period = serializers.CharField()
    amount = serializers.CharField()
    spent = serializers.CharField()
    encumbered = serializers.CharField()
    remaining = serializers.CharField()
    as_of = serializers.DateTimeField(help_text="as of when `spent` and `encumbered` are")
    forecast_method = serializers.CharField()
    forecast_p10 = serializers.CharField(allow_null=True)
    forecast_p50 = serializers.CharField(allow_null=True)
    forecast_p90 = serializers.CharField(allow_null=True)
    forecast_at = serializers.DateTimeField(allow_null=True, help_text="as of when the forecast is")
    forecast_errors = serializers.DictField(child=serializers.CharField())
    forecast_withheld = serializers.CharField(
        help_text="why there is no forecast: silent, early, uncounted, history, failed or passed"
    )
    data_through = serializers.DateTimeField(allow_null=True, help_text="through when the usage in `spent` is complete")
    silent_since = serializers.DateTimeField(allow_null=True, help_text="a reporter is silent since then")


class BudgetSerializer(serializers.ModelSerializer[Budget]):
    """Budget with its scope, thresholds and status."""

    team = serializers.CharField(source="team.code")
    standing = serializers.SerializerMethodField()

    class Meta:
        model = Budget
        fields = (
            "id", "team", "name", "period", "cluster", "namespace", "consumer", "accelerator", "model", "amount",
            "thresholds", "forecast_thresholds", "commitment_thresholds", "owner", "valid_from", "valid_until", "standing",
        )  # fmt: skip

    @extend_schema_field(StandingSerializer(allow_null=True))
    def get_standing(self, budget: Budget) -> dict[str, Any] | None:
        """Return the current status; None before the first refresh and in a month that a plan leaves out."""
        found = status_now(budget, timezone.now())
        if found is None:
            return None
        kept = {name: _text(getattr(found, name)) for name in StandingSerializer().get_fields() if name != "remaining"}
        expected = expected_by(found)
        forecast = {f"forecast_{name}": _text(getattr(expected, name)) for name in ("p10", "p50", "p90", "withheld")}
        return {**kept, **forecast, "remaining": str(found.amount - found.spent)}


def _text(value: object) -> object:
    return str(value) if isinstance(value, Decimal) else value


class Budgets(Endpoint, ListAPIView[Budget]):
    """Budgets and their status; a token or person confined to teams sees theirs."""

    parameters = [TEAM]
    permission_classes = [has_scope("budgets:read")]
    serializer_class = BudgetSerializer

    def get_queryset(self) -> QuerySet[Budget]:
        budgets = Budget.objects.select_related("team").order_by("team__code", "id")
        return rows_seen(budgets, self.request, team="team__code")


ANSWER = inline_serializer(
    "BudgetCheckAnswer",
    {
        "allowed": serializers.BooleanField(), "reason": serializers.CharField(),
        "budget": serializers.CharField(allow_null=True), "spent": serializers.CharField(allow_null=True),
        "remaining": serializers.CharField(allow_null=True), "as_of": serializers.DateTimeField(allow_null=True),
        "held": serializers.CharField(allow_null=True), "name": serializers.CharField(allow_null=True),
        "period": serializers.CharField(allow_null=True), "team": serializers.CharField(allow_null=True),
        "currency": serializers.CharField(),
        "reservation": serializers.DictField(child=serializers.CharField(), allow_null=True),
        "actions": serializers.ListField(child=serializers.DictField()),
    },
)  # fmt: skip


class BearsToken(BasePermission):
    """Permission for API tokens only: the token decides on the consumers that it may ask about."""

    message = "this needs an API token with the scope budgets:read"

    def has_permission(self, request: Request, view: Any) -> bool:
        actor = actor_of(request)
        return actor.token is not None and actor.has(SCOPE)


class Asked(APIView):
    """Base of the endpoints that answer a token's question about a budget."""

    parser_classes = [AnyBody]
    permission_classes = [BearsToken]

    def answer(self, request: Request, fields: Mapping[str, Any]) -> HttpResponse:
        found = msgspec.json.encode(budget_check(cast(ApiToken, request.auth), fields))
        return HttpResponse(found, content_type="application/json", headers={"Cache-Control": "no-store"})


class BudgetCheckEndpoint(Asked):
    """Budget check of a consumer and model. Reserves the possible cost of the request until it is in the ledger."""

    @extend_schema(
        operation_id="budgets_check",
        parameters=[
            OpenApiParameter(name, str, required=name in ("source", "consumer"), description=text)
            for name, text in QUESTION.items()
        ],
        responses={200: ANSWER, (503, PROBLEM_JSON): OpenApiTypes.OBJECT},
    )
    def get(self, request: Request) -> HttpResponse:
        return self.answer(request, read_query(request.META.get("QUERY_STRING", "")))


class GatewayAuthentication(ApiTokenAuthentication):
    """Authentication by `X-Suanpan-Authorization` if given: `Authorization` may be that of the gateway's client."""

    def authenticate(self, request: Request) -> tuple[TokenUser, ApiToken] | None:
        token = token_of(gateway_credentials(request.META))
        return (TokenUser(token), token) if token else None


class GatewayScheme(OpenApiAuthenticationExtension):
    """Entry of that header in the OpenAPI description."""

    target_class = GatewayAuthentication
    name = "gatewayToken"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "apiKey", "in": "header", "name": "X-Suanpan-Authorization",
            "description": "`Bearer <token>`; without it `Authorization`",
        }  # fmt: skip


class BudgetAuthorizeEndpoint(Asked):
    """Budget check in headers, answered by the status: forward-auth of nginx, Envoy, Traefik, APISIX and others."""

    authentication_classes = [GatewayAuthentication, SessionAuthentication]

    @extend_schema(
        operation_id="budgets_authorize",
        request=None,
        parameters=[
            *(
                OpenApiParameter(header, str, "header", required=field == "consumer", description=QUESTION[field])
                for field, header in QUESTION_HEADERS.values()
            ),
            OpenApiParameter("deny", str, enum=["403", "429"], description="status of a refusal"),
        ],
        responses={
            204: None, (403, PROBLEM_JSON): OpenApiTypes.OBJECT, (429, PROBLEM_JSON): OpenApiTypes.OBJECT,
            (503, PROBLEM_JSON): OpenApiTypes.OBJECT,
        },
    )  # fmt: skip
    def get(self, request: Request, client_path: str | None = None) -> HttpResponse:
        status, kind, body, headers = budget_authorize(
            cast(ApiToken, request.auth), request.META, request.META.get("QUERY_STRING", "")
        )
        return HttpResponse(body, status=status, content_type=kind, headers={**dict(headers), "Cache-Control": "no-store"})

    @extend_schema(exclude=True)
    def post(self, request: Request, client_path: str | None = None) -> HttpResponse:
        return self.get(request, client_path)


class ReservationsEndpoint(Asked):
    """Budget check as JSON, always with a reservation."""

    @extend_schema(
        operation_id="budgets_reservations_create",
        request=inline_serializer(
            "BudgetQuestion", {name: serializers.CharField(required=name in ("source", "consumer")) for name in QUESTION}
        ),
        responses={200: ANSWER, (503, PROBLEM_JSON): OpenApiTypes.OBJECT},
    )
    def post(self, request: Request) -> HttpResponse:
        return self.answer(request, read_fields(request._request.read(MOST_BODY + 1)))


class ReservationEndpoint(Asked):
    """One reservation."""

    @extend_schema(
        operation_id="budgets_reservations_release",
        responses={204: None, (404, PROBLEM_JSON): OpenApiTypes.OBJECT, (503, PROBLEM_JSON): OpenApiTypes.OBJECT},
    )
    def delete(self, request: Request, identity: str) -> HttpResponse:
        reservation_release(identity)
        return HttpResponse(status=204)
