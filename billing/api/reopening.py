"""Endpoint to open a closed month again: for people who are signed in, since a token is no second person."""

from typing import Any

from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.parameters import Endpoint, facts_of
from billing.api.schema import PROBLEM
from billing.closing.selectors import reopening_as_dict
from billing.closing.services.reopening import reopening_step
from billing.tenancy.access import Right
from billing.tenancy.actors import actor_of


class Asked(serializers.Serializer[Any]):
    """Step of a reopening."""

    action = serializers.ChoiceField(["request", "approve", "reject"])
    reason = serializers.CharField(max_length=2000, required=False, default="", help_text="of a request or a rejection")


class TwoPersons(BasePermission):
    """Permission for people who may close or approve."""

    message = "this takes a person who may close or approve; a token is nobody"

    def has_permission(self, request: Request, view: Any) -> bool:
        actor = actor_of(request)
        return actor.may(Right.CLOSE) or actor.may(Right.APPROVE)


class Reopenings(Endpoint):
    """Reopening of one closed month."""

    permission_classes = [TwoPersons]

    @extend_schema(
        operation_id="reopen_period", request=Asked,
        responses={200: OpenApiTypes.OBJECT, 409: OpenApiResponse(PROBLEM, "it stays closed; nothing has changed")},
    )  # fmt: skip
    def post(self, request: Request, month: str) -> Response:
        """Request a reopening, approve one that another person requested, or reject it."""
        facts = facts_of(Asked, request)
        done = reopening_step(
            step=facts["action"], month=month, reason=facts["reason"], actor=actor_of(request), now=timezone.now()
        )
        return Response({"period": month, **reopening_as_dict(done)})
