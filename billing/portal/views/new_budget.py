"""A new budget: its scope, its amounts and the thresholds that it begins with."""

from zoneinfo import ZoneInfo

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods

from billing.budgets import services
from billing.budgets.models import Budget
from billing.budgets.services import BudgetError
from billing.portal.access import page_for
from billing.portal.budget_form import BudgetForm, blank_form, form_of_post
from billing.tenancy.access import Right
from billing.tenancy.models import BillingSetup, Team


@require_http_methods(["GET", "HEAD", "POST"])
@page_for(Right.BUDGET)
def budget_new(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """The form, and the budget that it asks for; a refusal loses nothing that was typed."""
    if request.method != "POST":
        return _shown(request, setup, blank_form(timezone.now().astimezone(ZoneInfo(setup.zone)).date()))
    form = form_of_post(request.POST)
    asked = form.wish(setup.zone)
    if asked is None:
        return _shown(request, setup, form, 400)
    team, wish = asked
    try:
        made = services.budget_new(team=team, wish=wish, actor=request.user.get_username())
    except BudgetError as error:
        form.refuse(error)
        return _shown(request, setup, form, 400)
    return redirect("portal:budget", pk=made.pk)


def _shown(request: HttpRequest, setup: BillingSetup, form: BudgetForm, status: int = 200) -> HttpResponse:
    context = {
        "nav": "budgets", "setup": setup, "form": form, "periods": Budget.Period.values,
        "teams": Team.objects.order_by("-is_group", "code"),
    }  # fmt: skip
    return render(request, "portal/budget_new.html", context, status=status)
