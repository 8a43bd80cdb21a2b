"""Number of items that wait for the reader of a page: read once a request, for the menu and for the inbox."""

from typing import Any

from django.contrib.auth.models import User
from django.utils import timezone

from billing.inbox.selectors import Inbox, inbox_of
from billing.tenancy.models import BillingSetup


def inbox_seen(request: Any, setup: BillingSetup | None) -> Inbox:
    """Return the inbox of the user who sends the request. `setup`: if the page has read it."""
    known: Inbox | None = getattr(request, "_inbox", None)
    if known is None:
        user = getattr(request, "user", None)
        known = inbox_of(user, timezone.now(), setup) if isinstance(user, User) else Inbox(())
        request._inbox = known
    return known


def waiting_number(request: Any, setup: BillingSetup | None) -> int:
    """Return the number of items that wait; 0 without a request."""
    return 0 if request is None else inbox_seen(request, setup).number
