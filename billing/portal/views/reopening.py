"""Opening a closed month again from its page: one person asks, another one approves or turns it down."""

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from billing.approvals.limits import AuthorityError
from billing.closing.services.reopening import ReopeningError, reopening_step
from billing.portal.access import staff_page
from billing.portal.months import period_shown
from billing.portal.views.closing import close_page
from billing.tenancy.access import Right, access_of
from billing.tenancy.models import BillingSetup

NEEDED = {"request": (Right.CLOSE,), "approve": (Right.APPROVE,), "reject": (Right.APPROVE, Right.CLOSE)}


@require_POST
@staff_page
def reopening(request: HttpRequest, setup: BillingSetup, month: str) -> HttpResponse:
    """Take one `step` (request, approve, reject); a refusal is told on the page."""
    step, reason = (request.POST.get(name, "").replace("\0", "") for name in ("step", "reason"))
    step = step or "request"
    if step not in NEEDED:
        raise Http404(f"no step {step[:20]!r}")
    if not any(access_of(request.user).may(right) for right in NEEDED[step]):
        raise PermissionDenied
    shown = period_shown(month, setup)
    try:
        reopening_step(
            step=step, month=shown.month, reason=reason, actor=request.user.get_username(), now=timezone.now()
        )
    except (ReopeningError, AuthorityError) as error:
        return close_page(request, setup, shown.month, refused=error.message)
    return redirect(f"{reverse('portal:close')}?month={shown.month}")
