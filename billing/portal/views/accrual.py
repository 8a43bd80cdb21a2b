"""The estimated accrual of an open month: made with a button, handed out as the file that a ledger imports."""

from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_POST

from billing.closing.services.accrual import AccrualError, accrual_make
from billing.exports.journal import Chart, JournalError
from billing.portal.access import page_for
from billing.portal.months import period_shown
from billing.portal.views.closing import close_page
from billing.tenancy.access import Right
from billing.tenancy.models import BillingSetup


@require_POST
@page_for(Right.CLOSE)
def accrual(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """The estimate of a month as CSV; the same one until `again` asks for another."""
    period = period_shown(month, setup)
    try:
        made = accrual_make(
            month=period.month, chart=Chart(), actor=request.user.get_username(), now=timezone.now(),
            again=request.POST.get("again") == "yes",
        )  # fmt: skip
    except (AccrualError, JournalError) as error:
        return close_page(request, setup, period.month, refused=error.message)
    response = HttpResponse(made.csv, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{made.accrual.name}.csv"'
    return response
