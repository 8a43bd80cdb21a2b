"""Access rules of pages. A member who asks for another team's object gets 404, as if it did not exist."""

import logging
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from django.contrib.auth.decorators import login_required
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.utils import timezone
from django.utils.cache import patch_cache_control
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from billing.invoices.models import Invoice, Note
from billing.tenancy.access import Right, access_of, teams_visible_to
from billing.tenancy.models import BillingSetup, Team
from billing.tenancy.selectors import NoSetupError, billing_setup
from billing.usage.archive.places import UnreadableArchiveError

View = Callable[..., HttpResponseBase]
Decorator = Callable[[View], View]
Step = TypeVar("Step")
logger = logging.getLogger(__name__)


def page_of_anybody(view: View) -> View:
    """Wrap a view as a page for signed-in users; without a billing set-up the page names the first step.

    The view gets the set-up as its second argument; the zone in force is the billing zone. Pages show other people's
    money: no cache may store them.
    """
    return require_safe(_signed_in(view))


def page(view: View) -> View:
    """Wrap a view as a page for users who have a role, as `page_of_anybody`."""
    return require_safe(_with_role(view))


def action(view: View) -> View:
    """Wrap a view of the POST of a page's button, for users who have a role."""
    return require_POST(_with_role(view))


def form_page(view: View) -> View:
    """Wrap a view as a page whose form posts to its own address, for users who have a role."""
    return require_http_methods(["GET", "HEAD", "POST"])(_with_role(view))


def page_for(right: Right) -> Decorator:
    """Return a decorator of pages for users with `right` for the whole installation; all others get 403."""
    return lambda view: page(_holding(right, view))


def action_for(right: Right) -> Decorator:
    """Return a decorator of button POSTs for users with `right` for the whole installation."""
    return lambda view: action(_holding(right, view))


def form_page_for(right: Right) -> Decorator:
    """Return a decorator of pages with a form for users with `right` for the whole installation."""
    return lambda view: form_page(_holding(right, view))


staff_page = page_for(Right.READ)  # people who see every team: finance, approvers, platform admins, auditors
staff_action = action_for(Right.READ)


def _signed_in(view: View) -> View:
    @login_required
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        _refuse_nul(request, kwargs)
        try:
            setup = billing_setup()
        except NoSetupError:
            return render(request, "portal/no_setup.html")
        with timezone.override(setup.zone):
            try:
                response = view(request, setup, *args, **kwargs)
            except UnreadableArchiveError as error:
                logger.warning("archive: %s", error)
                response = _unreadable(request, setup, error)
        patch_cache_control(response, private=True, no_store=True)
        return response

    return guarded


def _with_role(view: View) -> View:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not access_of(request.user).somewhere(Right.READ):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return _signed_in(guarded)


def _holding(right: Right, view: View) -> View:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        if not access_of(request.user).may(right):
            raise PermissionDenied
        return view(request, *args, **kwargs)

    return guarded


def _unreadable(request: HttpRequest, setup: BillingSetup, error: UnreadableArchiveError) -> HttpResponse:
    """Render the error of an unreadable archive with its remedy: a part of a page for htmx, else a page with status 503."""
    # htmx does not swap in a response with an error status
    part = bool(getattr(request, "htmx", False))
    template = "portal/parts/unreadable.html" if part else "portal/unreadable.html"
    return render(request, template, {"unreadable": error.message, "setup": setup}, status=200 if part else 503)


def _refuse_nul(request: HttpRequest, named: dict[str, Any]) -> None:
    """Refuse a NUL in a name or parameter, which PostgreSQL cannot look for.  Raises Http404."""
    asked = [*named.values(), *(value for values in request.GET.lists() for value in values[1])]
    if any("\0" in str(value) for value in asked):
        raise Http404(f"a NUL in {request.get_full_path()!r} is in no name")


def rights(request: HttpRequest) -> dict[str, Any]:
    """Return `may.close` and the like for templates: rights held for the whole installation (a context processor)."""
    # a request that fails before the authentication middleware has no user
    return {"may": access_of(request.user).granted} if hasattr(request, "user") else {}


def reader_of(request: HttpRequest) -> User:
    """Return the signed-in user, on a page that requires one."""
    user: Any = request.user
    found: User = user
    return found


def step_or_404(steps: Mapping[str, Step], name: str) -> Step:
    """Return the step that a name in an address stands for.  Raises Http404."""
    if name not in steps:
        raise Http404(f"no step {name[:20]!r}")
    return steps[name]


def team_or_404(request: HttpRequest, code: str, right: Right = Right.READ) -> Team:
    """Return a team that the user may see.  Raises Http404, and PermissionDenied if the user lacks `right` for it."""
    team = get_object_or_404(teams_visible_to(request.user), code=code)
    if not access_of(request.user).may(right, team):
        raise PermissionDenied
    return team


def note_or_404(request: HttpRequest, pk: int) -> Note:
    """Return an issued credit note or rebill of a team that the user may see.  Raises Http404."""
    notes = Note.objects.select_related("team", "correction__period", "invoice")
    return get_object_or_404(notes, pk=pk, number__isnull=False, team__in=teams_visible_to(request.user))


def invoice_or_404(request: HttpRequest, pk: int) -> Invoice:
    """Return an invoice of a team that the user may see.  Raises Http404."""
    invoices = Invoice.objects.select_related("team", "period")
    return get_object_or_404(invoices, pk=pk, team__in=teams_visible_to(request.user))
