"""First run: from an empty installation to the first bill, each step looked at while somebody works on it."""

from zoneinfo import available_timezones

from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from billing.portal.htmx import HtmxRequest
from billing.portal.onboarding import steps
from billing.tenancy.access import Right, access_of
from billing.tenancy.models import BillingSetup
from billing.tenancy.services import ISSUER_FACTS, billing_setup_put

CODE_LENGTH = 3
ISSUER_LENGTH = 64


@require_safe
@never_cache
@login_required
def start(request: HtmxRequest) -> HttpResponse:
    """The steps; `part=steps` is asked for again every few seconds. Stands before any set-up exists."""
    _operators_only(request)
    return _shown(request)


def _operators_only(request: HttpRequest) -> None:
    if not access_of(request.user).may(Right.OPERATE):
        raise PermissionDenied


def _shown(request: HtmxRequest, errors: dict[str, str] | None = None, status: int = 200) -> HttpResponse:
    found = steps(timezone.now())
    part = request.htmx and request.GET.get("part") == "steps"
    context = {
        "nav": "start", "steps": found, "done": sum(step.done for step in found), "errors": errors or {},
        "given": request.POST or {"currency": "CNY", "zone": "Asia/Shanghai", "review": "none"},
        "missing_setup": not found[0].done, "address": request.build_absolute_uri("/"),
    }  # fmt: skip
    return render(request, "portal/parts/start_steps.html" if part else "portal/start.html", context, status=status)


@require_POST
@login_required
def start_billing(request: HtmxRequest) -> HttpResponse:
    """Store how this installation bills, once; later changes go through the set-up file."""
    _operators_only(request)
    if BillingSetup.objects.exists():
        return HttpResponse(_("The billing set-up exists already: change it with `manage.py apply FILE`."), status=409)
    given = {name: request.POST.get(name, "").strip() for name in ("currency", "zone", "issuer", "review")}
    told = {name: request.POST.get(name, "").strip() for name in ISSUER_FACTS}
    errors = _faults(given) | _too_long(told)
    if errors:
        return _shown(request, errors, status=400)
    billing_setup_put(
        currency=given["currency"], zone=given["zone"], issuer=given["issuer"], review=given["review"],
        legal_entity=told["legal_entity"], address=told["address"], tax_id=told["tax_id"], contact=told["contact"],
        actor=request.user.get_username(),
    )  # fmt: skip
    return redirect("portal:start")


def _too_long(told: dict[str, str]) -> dict[str, str]:
    return {
        name: _("printable, at most %(limit)s characters") % {"limit": limit}
        for name, limit in ISSUER_FACTS.items()
        if len(told[name]) > limit or not told[name].isprintable()
    }


def _faults(given: dict[str, str]) -> dict[str, str]:
    """What is wrong, by field: the rules of the set-up file."""
    errors: dict[str, str] = {}
    currency, issuer = given["currency"], given["issuer"]
    if len(currency) != CODE_LENGTH or not (currency.isascii() and currency.isalpha() and currency.isupper()):
        errors["currency"] = _("an ISO 4217 code such as CNY")
    if given["zone"] not in available_timezones():
        errors["zone"] = _("a time zone such as Asia/Shanghai")
    if not 0 < len(issuer) <= ISSUER_LENGTH or any(char.isspace() for char in issuer):
        errors["issuer"] = _("a short name without blanks, which begins the number of every document")
    if given["review"] not in BillingSetup.Review.values:
        errors["review"] = _("none or four-eyes")
    return errors
