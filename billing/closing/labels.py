"""Display names of operations, reopenings, and exceptions with their owners and subjects."""

import re
from typing import Any, Final

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from billing.tenancy.models import Membership

OPERATION_KIND: Final = {
    "close": pgettext_lazy("month", "Close"), "issue": _("Issue"), "assess": _("Assess"), "focus": _("FOCUS"),
}  # fmt: skip
EXCEPTION_OWNER: Final = {Membership.Role.FINANCE: _("Finance"), Membership.Role.ADMIN: _("Platform admin")}
REOPENING_STATUS: Final = {
    "requested": _("Waits for approval"),
    "approved": _("Approved"),
    "rejected": _("Rejected"),
}
QUARANTINED: Final = ((re.compile(r"(?P<reporter>.+) via (?P<endpoint>.+)"), _("%(reporter)s via %(endpoint)s")),)
SUBJECTS: Final[dict[str, tuple[tuple[re.Pattern[str], Any], ...]]] = {
    "metering_gap": (
        (re.compile(r"(?P<cluster>[^/]+)/agent (?P<agent>.+)"), _("%(cluster)s/agent %(agent)s")),
        (re.compile(r"agent (?P<agent>.+)"), _("agent %(agent)s")),
    ),
    "quarantine": QUARANTINED,
    "conflict": QUARANTINED,
    "paid_by_call": QUARANTINED,
    "estimated_end": ((re.compile(r"(?P<cluster>.+)/others"), _("%(cluster)s/others")),),
    "engine_difference": (
        (re.compile(r"(?P<model>.+) \(reported, not counted\)"), _("%(model)s (reported, not counted)")),
    ),
    "energy_difference": (
        (re.compile(r"(?P<cluster>.+) \(charged, not metered\)"), _("%(cluster)s (charged, not metered)")),
    ),
    "unknown_share": ((re.compile(r"(?P<what>.+) on (?P<accelerator>.+)"), _("%(what)s on %(accelerator)s")),),
    "upheld_uncredited": (
        (re.compile(r"dispute (?P<number>\d+) of (?P<document>.+)"), _("dispute %(number)s of %(document)s")),
    ),
}
"""Subjects of exceptions that have words between their names. They are stored in English, by which they are waived."""


def subject_words(kind: str, subject: str) -> str:
    """Translate the subject of an exception for the reader; names and codes stay as they are."""
    for pattern, words in SUBJECTS.get(kind, ()):
        if found := pattern.fullmatch(subject):
            return str(words % found.groupdict())
    return subject
