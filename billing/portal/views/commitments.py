"""What teams have committed to: hours bought, used and unused in a month."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from billing.portal.access import page
from billing.portal.commitments import CommitmentUse, commitment_uses
from billing.portal.months import month_choice
from billing.portal.statements import month_statements
from billing.portal.tables import Column, Table, download
from billing.portal.views.overview import stage_of
from billing.tenancy.access import teams_visible_to
from billing.tenancy.models import BillingSetup


@require_safe
@page
def commitment_list(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """The commitments of the teams that somebody may see, in a month."""
    choice = month_choice(request.GET.get("month", ""), setup, timezone.now())
    teams = teams_visible_to(request.user).filter(commitments__isnull=False).distinct()
    month = month_statements(choice.period, teams)
    uses = commitment_uses(month, list(teams))
    if (file := download(request, {"commitments": lambda: _table(choice.month, uses)})) is not None:
        return file
    context = {
        "nav": "commitments", "setup": setup, "choice": choice, "period": choice.period, "month": month, "uses": uses,
        "stage": stage_of(month),
    }  # fmt: skip
    return render(request, "portal/commitments.html", context)


def _table(month: str, uses: list[CommitmentUse]) -> Table:
    hours = ("bought", "used", "unused", "beyond")
    columns = [
        *(Column(name) for name in ("month", "team", "commitment", "accelerator")), Column("price_per_gpu_hour", "price"),
        *(Column(f"{name}_gpu_hours", "quantity") for name in hours), Column("used_share", "ratio"),
        Column("used_amount", "money"), Column("unused_amount", "money"),
    ]  # fmt: skip
    rows = [
        [month, use.team.code, use.commitment.name, use.commitment.accelerator, use.commitment.price,
         *(getattr(use, name) for name in hours), use.share, use.used_amount, use.unused_amount]
        for use in uses
    ]  # fmt: skip
    return Table(f"commitments-{month}", columns, rows)
