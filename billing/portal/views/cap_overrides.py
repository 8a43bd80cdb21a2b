"""Letting a budget pass its cap: its holder asks, somebody of finance or an approver agrees, either may end it."""

from decimal import Decimal

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils import timezone
from django.views.decorators.http import require_POST

from billing.approvals.limits import AuthorityError
from billing.budgets.models import CapOverride
from billing.budgets.services import BudgetError, cap_override_approve, cap_override_ask, cap_override_end
from billing.corrections.note_lines import NoteError
from billing.portal.access import page
from billing.portal.views.budgets import budget_or_404, budget_page, local_moment, own_budget
from billing.portal.views.corrections import form_decimal
from billing.tenancy.access import Right, access_of
from billing.tenancy.models import BillingSetup


@require_POST
@page
def ask(request: HttpRequest, setup: BillingSetup, pk: int) -> HttpResponse:
    """Ask for a higher cap: amount, end, reason."""
    found = own_budget(request, pk)
    try:
        cap_override_ask(
            budget=found, amount=form_decimal(request, "amount") or Decimal(0),
            until=local_moment("override", request.POST.get("until", ""), setup.zone),
            reason=request.POST.get("reason", ""), now=timezone.now(), actor=request.user.get_username(),
        )  # fmt: skip
    except (BudgetError, NoteError) as error:
        return budget_page(request, setup, found, error.message, 400)
    return redirect("portal:budget", pk=pk)


@require_POST
@page
def step(request: HttpRequest, setup: BillingSetup, pk: int, override_pk: int, step: str) -> HttpResponse:
    """Approve what somebody else asked for, or end it."""
    found = budget_or_404(request, pk)
    override = CapOverride.objects.select_related("budget__team").filter(pk=override_pk, budget=found).first()
    if override is None or step not in ("approve", "end"):
        raise Http404(f"no override {override_pk} of budget {pk}, or no step {step[:20]!r}")
    now, actor = timezone.now(), request.user.get_username()
    try:
        if step == "approve":
            cap_override_approve(override_id=override.pk, now=now, actor=actor)
        elif not access_of(request.user).may(Right.BUDGET, found.team):
            raise PermissionDenied
        else:
            cap_override_end(override=override, now=now, actor=actor)
    except (BudgetError, AuthorityError) as error:
        return budget_page(request, setup, found, error.message, 409)
    return redirect("portal:budget", pk=pk)
