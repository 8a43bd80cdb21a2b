"""Endpoint of a team's dated organisation: cost centre, department, legal entity and parent, each from an instant on.

It writes by the service of the set-up file and the form, with their refusals and audit entries.
"""

from typing import Any

from django.shortcuts import get_object_or_404
from django.utils import timezone
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ParseError
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.commitments import REFUSED, DeclaredInstant
from billing.api.parameters import Endpoint, facts_of
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.setup.owners import dated_facts_of, owners_apply, owners_preview, sections_text, teams_declared
from billing.tenancy.actors import actor_of
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup
from metering.intervals import month_of
from pricing.number_text import amount_text

FACTS = ("cost_center", "department", "legal_entity", "parent")


class DatedTextSerializer(serializers.Serializer[Any]):
    """Value of a fact from `valid_from` on; null: from the beginning."""

    value = serializers.CharField(max_length=200, allow_blank=True)
    valid_from = DeclaredInstant(allow_null=True, default=None)


class OrganisationSerializer(serializers.Serializer[Any]):
    """Facts to replace, each by its whole list in any order; a fact that is left out stays."""

    cost_center = DatedTextSerializer(many=True, required=False, allow_empty=False)
    department = DatedTextSerializer(many=True, required=False, allow_empty=False)
    legal_entity = DatedTextSerializer(many=True, required=False, allow_empty=False, help_text="at starts of months only")
    parent = DatedTextSerializer(many=True, required=False, allow_empty=False, help_text="codes of groups")
    preview = serializers.BooleanField(default=False, help_text="say what would change, and store nothing")


ANSWER = {
    "type": "object",
    "required": ["team", *FACTS],
    "properties": {
        "team": {"type": "string"}, **{fact: {"type": "array", "items": {"type": "object"}} for fact in FACTS},
        "changes": {"type": "array", "items": {"type": "string"}},
        "moved": {"type": "array", "items": {"type": "object"}},
    },
}  # fmt: skip


class ReadsOrChangesTeams(BasePermission):
    """Permission: `invoices:read` to read, `teams:write` or the right to operate to write."""

    message = "this needs the scope invoices:read to read, teams:write to write"

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.method in SAFE_METHODS:
            return has_scope("invoices:read")().has_permission(request, view)
        return actor_of(request).has("teams:write")


class TeamOrganisation(Endpoint):
    """Dated organisation of a team or group."""

    permission_classes = [ReadsOrChangesTeams]

    @extend_schema(operation_id="team_organisation", responses={200: OpenApiResponse(ANSWER)})
    def get(self, request: Request, code: str) -> Response:
        """Return every fact as a list of values with the instant from which each counts (null: from the beginning)."""
        return Response(_organisation(_team_seen(request, code)))

    @extend_schema(
        operation_id="change_team_organisation", request=OrganisationSerializer,
        responses={200: OpenApiResponse(ANSWER), 409: REFUSED},
    )  # fmt: skip
    def patch(self, request: Request, code: str) -> Response:
        """Replace facts. `changes`: what was stored, in words; `moved`, of a preview: amounts of open months that move."""
        team = _team_seen(request, code)
        facts, actor, now = facts_of(OrganisationSerializer, request), actor_of(request), timezone.now()
        preview = facts.pop("preview")
        if not facts:
            raise ParseError(f"name at least one of {', '.join(FACTS)}")
        text = sections_text({"teams": [teams_declared([team])[0] | {fact: _declared(facts[fact]) for fact in facts}]})
        if not preview:
            applied = owners_apply(text=text, name="body", actor=actor)
            return Response({**_organisation(_team_seen(request, code)), "changes": applied.changes})
        open_months = BillingPeriod.objects.filter(status=BillingPeriod.Status.OPEN).values_list("month", flat=True)
        months = sorted({*open_months, month_of(now, billing_setup().zone)})
        shown = owners_preview(text=text, name="body", actor=actor, periods=[period_of(month) for month in months])
        moved = [
            {"month": row.month, "fact": row.fact, "from": row.before, "to": row.after, "amount": amount_text(row.amount)}
            for row in shown.facts
        ]
        return Response({**_organisation(team), "changes": shown.applied.changes, "moved": moved})


def _team_seen(request: Request, code: str) -> Team:
    own = actor_of(request).teams()
    return get_object_or_404((Team.objects.all() if own is None else own).select_related("parent"), code=code)


def _organisation(team: Team) -> dict[str, Any]:
    found = dated_facts_of(team)
    return {"team": team.code} | {
        fact: [{"value": value, "valid_from": since and since.isoformat()} for since, value in found[fact].entries]
        for fact in FACTS
    }


def _declared(listed: list[dict[str, Any]]) -> Any:
    """Return a fact as a set-up file has it: a text where it is always the same, else the dated list."""
    if len(listed) == 1 and listed[0]["valid_from"] is None:
        return listed[0]["value"]
    return [
        {"value": item["value"], **({"valid_from": item["valid_from"].isoformat()} if item["valid_from"] else {})}
        for item in listed
    ]
