"""Display names of roles and facts of teams."""

from typing import Final

from django.utils.translation import gettext_lazy as _

from billing.tenancy.models import Membership

TEAM_FACT: Final = {
    "cost_center": _("Cost centre"), "department": _("Department"), "legal_entity": _("Legal entity"),
    "parent": _("Parent group"),
}  # fmt: skip
ROLE: Final = {
    Membership.Role.VIEWER: _("Viewer"),
    Membership.Role.LEAD: _("Team lead"),
    Membership.Role.FINANCE: _("Finance"),
    Membership.Role.APPROVER: _("Approver"),
    Membership.Role.ADMIN: _("Platform admin"),
    Membership.Role.AUDITOR: _("Auditor"),
}
