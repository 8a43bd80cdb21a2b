"""Version and backups: what an administrator looks at before and after an upgrade."""

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
    """The release, its schema, the last backups and where the head of the audit log was sent."""
    context = {
        "nav": "installation", "setup": setup, "version": __version__, "pending": migrations_pending(),
        "backups": last_backups(), "anchors": anchor_states(),
    }  # fmt: skip
    return render(request, "portal/installation.html", context)
