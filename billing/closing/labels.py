"""What pages call the operations on a month, its reopenings and the roles that solve its exceptions."""

from typing import Final

from django.utils.translation import gettext_lazy as _

from billing.tenancy.models import Membership

OPERATION_KIND: Final = {"close": _("Close"), "issue": _("Issue"), "assess": _("Assess"), "focus": _("FOCUS")}
EXCEPTION_OWNER: Final = {Membership.Role.FINANCE: _("Finance"), Membership.Role.ADMIN: _("Platform admin")}
REOPENING_STATUS: Final = {
    "requested": _("Waits for approval"),
    "approved": _("Approved"),
    "rejected": _("Rejected"),
}
