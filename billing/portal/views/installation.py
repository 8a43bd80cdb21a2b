"""Version and backups, which an administrator checks before and after an upgrade."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from billing.portal.access import page_for
from billing.runtime.schema_state import migrations_pending
from billing.tenancy.access import Right
from billing.tenancy.audit_anchors import anchor_states
from billing.tenancy.backups import last_backups
from billing.tenancy.models import BillingSetup
from metering import __version__


@page_for(Right.MANAGE_PEOPLE)
def installation(request: HttpRequest, setup: BillingSetup) -> HttpResponse:
    """Show the release, its schema, the last backups and the destinations of the head of the audit log."""
    context = {
        "nav": "installation", "setup": setup, "version": __version__, "pending": migrations_pending(),
        "backups": last_backups(), "anchors": anchor_states(),
    }  # fmt: skip
    return render(request, "portal/installation.html", context)
