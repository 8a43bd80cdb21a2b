"""Endpoints of price versions: read, draft, compare, preview, submit, approve. The rules are in `billing.rates`.

A token with `prices:write`, or a person who may edit prices, makes drafts. Approval takes a person who may approve, or a
token with `prices:approve`, and neither may be one of the draft's makers. No token holds both scopes.
"""

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from django.db.models import QuerySet
from django.http import Http404, HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema, extend_schema_view
from rest_framework import status
from rest_framework.generics import ListAPIView
from rest_framework.permissions import SAFE_METHODS, BasePermission
from rest_framework.request import Request
from rest_framework.response import Response

from billing.api.authentication import has_scope
from billing.api.invoices import PriceVersions
from billing.api.parameters import Endpoint, asked, facts_of
from billing.api.price_shapes import (
    DiffSerializer,
    DraftChangeSerializer,
    DraftRequestSerializer,
    DraftSerializer,
    EffectSerializer,
    PublishedSerializer,
    StepRequestSerializer,
)
from billing.api.problems import PROBLEM_JSON, problem
from billing.closing.price_preview import last_month, month_effect
from billing.invoices.selectors import period_of
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.price_diff import price_changes
from billing.rates.price_file import export_yaml
from billing.rates.price_list import PriceListError
from billing.rates.selectors import plain_version, price_draft_named, price_list_named, price_version_before
from billing.rates.services import (
    PriceDraftError,
    price_draft_approve,
    price_draft_reject,
    price_draft_submit,
    price_draft_withdraw,
    price_draft_write,
)
from billing.tenancy.access import Right
from billing.tenancy.actors import actor_of
from billing.tenancy.selectors import billing_setup
from metering.intervals import IntervalError
from metering.messages import Message
from pricing.fields import FieldProblem

STEPS: Mapping[str, tuple[Callable[..., Any], str]] = {
    "submit": (price_draft_submit, "prices:write"),
    "withdraw": (price_draft_withdraw, "prices:write"),
    "approve": (price_draft_approve, "prices:approve"),
    "reject": (price_draft_reject, "prices:approve"),
}
CONFLICTS = frozenset({"state", "revision"})
NAME = OpenApiParameter("name", str, OpenApiParameter.PATH, description="name of a published version or a draft")
REFUSED = {
    (400, PROBLEM_JSON): OpenApiTypes.OBJECT,
    (403, PROBLEM_JSON): OpenApiTypes.OBJECT,
    (404, PROBLEM_JSON): OpenApiTypes.OBJECT,
    (409, PROBLEM_JSON): OpenApiTypes.OBJECT,
}


def sees_drafts(request: Request) -> bool:
    """Return True if the client may see drafts, which are future prices: it makes, approves or audits prices."""
    actor = actor_of(request)
    return actor.has("prices:write") or actor.has("prices:approve") or actor.may(Right.READ_COSTS)


class WritesPrices(BasePermission):
    """Permission: `prices:read`, or access to drafts, to read; `prices:write` to write."""

    message = "this needs the scope prices:write"

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.method in SAFE_METHODS:
            return sees_drafts(request) or has_scope("prices:read")().has_permission(request, view)
        return actor_of(request).has("prices:write")


class TakesStep(BasePermission):
    """Permission: `prices:write` to submit or withdraw, `prices:approve` to decide."""

    message = "this needs the scope prices:write to submit or withdraw, prices:approve to decide"

    def has_permission(self, request: Request, view: Any) -> bool:
        step = STEPS.get(view.kwargs.get("step", ""))
        return actor_of(request).has(step[1]) if step else sees_drafts(request)


class SeesDrafts(BasePermission):
    """Permission for clients that make, approve or audit prices."""

    message = "this needs the scope prices:write or prices:approve"

    def has_permission(self, request: Request, view: Any) -> bool:
        return sees_drafts(request)


class _PriceEndpoint(Endpoint):
    """Base of the price endpoints: refusals of a draft become problems by field."""

    permission_classes = [WritesPrices]

    def handle_exception(self, error: Exception) -> Any:
        if isinstance(error, PriceDraftError):
            return refusal(error)
        if isinstance(error, PriceListError | IntervalError):
            return problem(400, "Invalid input", str(error))
        return super().handle_exception(error)

    def listed(self, name: str) -> PriceDraft | PriceVersion:
        """Return the version or draft, if the client may see it.  Raises Http404."""
        found = price_list_named(name)
        if found is None or (isinstance(found, PriceDraft) and not sees_drafts(self.request)):
            raise Http404
        return found

    def draft(self, name: str) -> PriceDraft:
        """Return the draft of that name.  Raises Http404, or PriceDraftError if the name is of a declared version."""
        found = price_draft_named(name)
        if found is None:
            self.listed(name)
            wrong = Message("%(name)s is published and never changes: draft another list", name=name)
            raise PriceDraftError([FieldProblem(("state",), wrong)])
        return found

    def draft_answer(self, draft: PriceDraft, code: int = status.HTTP_200_OK) -> Response:
        return Response(DraftSerializer(draft, context={"now": timezone.now()}).data, status=code)


def refusal(error: PriceDraftError) -> HttpResponse:
    """Build the problem: 403 for a maker who would approve, 409 for another state or revision, 400 for fields."""
    fields = set(error.by_field)
    code: int
    if fields == {"actor"}:
        code, title = status.HTTP_403_FORBIDDEN, "Second person needed"
    elif fields <= CONFLICTS:
        code, title = status.HTTP_409_CONFLICT, "Conflict"
    else:
        code, title = status.HTTP_400_BAD_REQUEST, "Invalid input"
    return problem(code, title, str(error), errors=error.by_field)


@extend_schema_view(get=extend_schema(description="Every published price version."))
class PriceVersionsEndpoint(_PriceEndpoint, PriceVersions):
    """Published price versions; a new one begins as a draft."""

    permission_classes = [WritesPrices]

    @extend_schema(request=DraftRequestSerializer, responses={201: DraftSerializer, **REFUSED})
    def post(self, request: Request) -> Response:
        """Make a draft; nothing is published."""
        draft = price_draft_write(fields=request.data, actor=actor_of(request), now=timezone.now())
        return self.draft_answer(draft, status.HTTP_201_CREATED)


@extend_schema(parameters=[NAME])
class PriceVersionEndpoint(_PriceEndpoint):
    """One price version, published or a draft."""

    @extend_schema(responses={200: PublishedSerializer, **REFUSED})
    def get(self, request: Request, name: str) -> Response:
        """Return a published version, or for makers and approvers the draft of that name."""
        found = self.listed(name)
        return self.draft_answer(found) if isinstance(found, PriceDraft) else Response(PublishedSerializer(found).data)

    @extend_schema(request=DraftChangeSerializer, responses={200: DraftSerializer, **REFUSED})
    def patch(self, request: Request, name: str) -> Response:
        """Change a draft; a submitted one has to be submitted again."""
        fields = dict(request.data) if isinstance(request.data, Mapping) else request.data
        revision = fields.pop("revision", None) if isinstance(fields, dict) else None
        draft = price_draft_write(
            fields=fields, actor=actor_of(request), now=timezone.now(), draft=self.draft(name), revision=revision
        )
        return self.draft_answer(draft)


@extend_schema(parameters=[NAME])
class PriceDiffEndpoint(_PriceEndpoint):
    """Comparison of two lists, price by price."""

    parameters = [OpenApiParameter("against", str, description="default: the published version before it")]

    @extend_schema(responses={200: DiffSerializer, **REFUSED})
    def get(self, request: Request, name: str) -> Response:
        """Compare a version or draft with another one."""
        new = self.listed(name)
        against = asked(request, "against")
        old = self.listed(against) if against else price_version_before(new)
        if old is None:
            raise Http404
        changes = [change.as_dict() for change in price_changes(plain_version(old), plain_version(new))]
        return Response({"old": old.name, "new": new.name, "prices": changes})


@extend_schema(parameters=[NAME])
class PriceEffectEndpoint(_PriceEndpoint):
    """Effect of a list on the real usage of a month."""

    parameters = [OpenApiParameter("month", str, description="default: the last month that has ended")]
    permission_classes = [SeesDrafts]

    @extend_schema(responses={200: EffectSerializer, **REFUSED})
    def get(self, request: Request, name: str) -> Response:
        """Price the usage of a month by its own prices and by this list; per team and SKU."""
        found, month = self.listed(name), asked(request, "month") or last_month(timezone.now())
        effect = month_effect(period=period_of(month), prices=plain_version(found))
        return Response({"name": found.name, "month": month, "currency": found.currency, **effect.as_dict()})


@extend_schema(parameters=[NAME])
class PriceFileEndpoint(_PriceEndpoint):
    """List as the YAML of the set-up file, with its cost sheets."""

    permission_classes = [SeesDrafts]

    @extend_schema(responses={(200, "application/yaml"): OpenApiTypes.STR, **REFUSED})
    def get(self, request: Request, name: str) -> HttpResponse:
        """Download the file."""
        text = export_yaml(self.listed(name), billing_setup().zone)
        named = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}.yaml"}
        return HttpResponse(text, content_type="application/yaml; charset=utf-8", headers=named)


@extend_schema(
    parameters=[NAME, OpenApiParameter("step", str, OpenApiParameter.PATH, enum=list(STEPS), description="what to do")]
)
class PriceStepEndpoint(_PriceEndpoint):
    """Submission, approval, rejection or withdrawal of a draft."""

    permission_classes = [TakesStep]

    @extend_schema(
        operation_id="price_versions_step", request=StepRequestSerializer, responses={200: DraftSerializer, **REFUSED}
    )
    def post(self, request: Request, name: str, step: str) -> Response:
        """Take the step; an approval publishes the list for its instant."""
        if step not in STEPS:
            raise Http404
        asked = facts_of(StepRequestSerializer, request)
        draft = self.draft(name)
        if step == "reject":
            asked.setdefault("reason", "")
        STEPS[step][0](draft=draft, actor=actor_of(request), now=timezone.now(), **asked)
        draft.refresh_from_db()
        return self.draft_answer(draft)


class PriceDraftsEndpoint(_PriceEndpoint, ListAPIView[PriceDraft]):
    """Drafts with their history, the newest first."""

    permission_classes = [SeesDrafts]
    serializer_class = DraftSerializer

    def get_queryset(self) -> QuerySet[PriceDraft]:
        return PriceDraft.objects.select_related("version").prefetch_related("steps")

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "now": timezone.now()}
