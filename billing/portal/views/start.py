"""First run: steps from an empty installation to the first bill, with their state while a user works on them."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from billing.invoices.models import BillingPeriod, Invoice
from billing.portal.access import reader_of
from billing.portal.htmx import HtmxRequest
from billing.portal.setup_form import SetupForm
from billing.portal.sources import last_reports
from billing.rates.models import PriceVersion
from billing.tenancy.access import RIGHTS, Right, access_of
from billing.tenancy.actors import actor_of
from billing.tenancy.models import BillingSetup, ConsumerOwnership, NamespaceOwnership, Team
from billing.tenancy.services import billing_setup_put
from billing.usage.gaps import BEHIND
from billing.usage.models import AgentWatermark, GpuAllocation
from billing.usage.reconciliation import SILENT_AFTER
from billing.usage.store.hours import hours_used


@dataclass(frozen=True, slots=True)
class Reporter:
    """Reporter of usage: a cluster's agent or a gateway; `seconds` since its last contact, None for never.

    tolerated: time without a report after which it counts as silent.
    """

    name: str
    seconds: int | None
    tolerated: timedelta

    @property
    def silent(self) -> bool:
        return self.seconds is None or self.seconds > self.tolerated.total_seconds()


@dataclass(frozen=True, slots=True)
class Step:
    """Step by name: its state, and the facts that show it."""

    name: str
    done: bool
    facts: list[str]
    reporters: list[Reporter]


def steps(now: datetime) -> list[Step]:
    """Return every step in order, read from the database each time."""
    setup = BillingSetup.objects.first()
    codes = list(Team.objects.filter(is_group=False).values_list("code", flat=True)[:6])
    clusters, gateways = _clusters(now), _gateways(now)
    version = PriceVersion.objects.filter(sealed=True).order_by("-valid_from").first()
    namespaces = NamespaceOwnership.objects.order_by("id").values_list("namespace", flat=True)
    consumers = ConsumerOwnership.objects.order_by("id").values_list("consumer", flat=True)
    closed = list(BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED).values_list("month", flat=True)[:3])
    invoices = [str(invoice.number) for invoice in Invoice.objects.exclude(number=None).order_by("id")[:3]]
    owned = [*namespaces[:3], *consumers[:3]]
    return [
        Step("billing", setup is not None, [f"{setup.currency}, {setup.zone}, {setup.issuer}"] if setup else [], []),
        Step("teams", bool(codes), codes, []),
        Step("cluster", GpuAllocation.objects.exists(), [], clusters),
        Step("gateway", hours_used() is not None, [], gateways),
        Step("owners", bool(owned), owned, []),
        Step("price", version is not None, [version.name] if version else [], []),
        Step("close", bool(closed), closed, []),
        Step("invoice", bool(invoices), invoices, []),
    ]


def _clusters(now: datetime) -> list[Reporter]:
    newest = AgentWatermark.objects.order_by("cluster").values_list("cluster").annotate(Max("reported_at"))
    return [Reporter(cluster, _age(at, now), BEHIND) for cluster, at in newest]


def _gateways(now: datetime) -> list[Reporter]:
    """Return gateways by the tokens made for one source; clusters' agents have a watermark and are left out."""
    clusters = set(AgentWatermark.objects.values_list("cluster", flat=True))
    return [
        Reporter(source, None if at is None else _age(at, now), SILENT_AFTER)
        for source, at in last_reports().items() if source not in clusters
    ]  # fmt: skip


def _age(at: datetime, now: datetime) -> int:
    return max(0, int((now - at).total_seconds()))


@require_safe
@never_cache
@login_required
def start(request: HtmxRequest) -> HttpResponse:
    """Show the steps; the page requests `part=steps` every few seconds. Works before any set-up exists."""
    _operators_only(request)
    return _shown(request, SetupForm())


def _alone(request: HttpRequest) -> bool:
    """Return True if no other user may approve the work of the reader."""
    return not _holders(Right.APPROVE).exclude(pk=reader_of(request).pk).exists()


def _holders(right: Right) -> QuerySet[User]:
    roles = [role for role, rights in RIGHTS.items() if right in rights]
    # a role for a single team gives the right for that team only
    may = Q(is_superuser=True) | Q(memberships__role__in=roles, memberships__team=None)
    return User.objects.filter(may, is_active=True)


def _operators_only(request: HttpRequest) -> None:
    if not access_of(request.user).may(Right.OPERATE):
        raise PermissionDenied


def _shown(request: HtmxRequest, form: SetupForm) -> HttpResponse:
    found = steps(timezone.now())
    part = request.htmx and request.GET.get("part") == "steps"
    context = {
        "nav": "start", "steps": found, "done": sum(step.done for step in found), "form": form,
        "missing_setup": not found[0].done, "alone": _alone(request),
        "nobody_closes": not _holders(Right.CLOSE).exists(),
        "reviewed": BillingSetup.objects.filter(review=BillingSetup.Review.FOUR_EYES).exists(),
    }  # fmt: skip
    template = "portal/parts/start_steps.html" if part else "portal/start.html"
    return render(request, template, context, status=400 if form.is_bound else 200)


@require_POST
@login_required
def start_billing(request: HtmxRequest) -> HttpResponse:
    """Store the billing set-up of this installation, once; later it is changed on the page of policies."""
    _operators_only(request)
    if BillingSetup.objects.exists():
        text = gettext("The billing set-up exists already: change it on the page Policies.")
        return HttpResponse(text, status=409)
    form = SetupForm(request.POST)
    if form.done(billing_setup_put, actor=actor_of(request)):
        return redirect("portal:start")
    return _shown(request, form)
