"""Waivers: somebody answers for an exception that cannot be solved, with a reason."""

from datetime import datetime

from billing.invoicing.exception_kinds import WAIVABLE
from billing.invoicing.models import BillingPeriod, ExceptionWaiver
from billing.invoicing.report import build_report
from billing.tenancy.audit import audit_record


class WaiverError(ValueError):
    """An exception that may not be waived."""


def exception_waive(
    *, period: BillingPeriod, kind: str, subject: str, reason: str, actor: str, now: datetime
) -> ExceptionWaiver:
    """Let the close go on despite an exception, up to its present quantity: whatever comes on top blocks again.

    Usage without owner or price cannot be waived: it must be solved.
    """
    if kind not in WAIVABLE:
        raise WaiverError(f"{kind} cannot be waived (only {', '.join(WAIVABLE)}): solve it")
    if not reason.strip():
        raise WaiverError("a waiver needs a reason")
    reported = build_report(period, now=now, thorough=False).exceptions
    found = next((item for item in reported if (item.kind, item.subject) == (kind, subject)), None)
    if found is None:
        raise WaiverError(f"period {period.month} has no exception {kind} {subject}")
    waiver, _ = ExceptionWaiver.objects.update_or_create(
        period=period, kind=kind, subject=subject,
        defaults={"reason": reason, "waived_by": actor, "quantity": found.quantity},
    )  # fmt: skip
    detail = {"reason": reason, "quantity": str(found.quantity)}
    audit_record(actor=actor, action="exception_waive", subject=f"{period.month} {kind} {subject}", detail=detail)
    return waiver
