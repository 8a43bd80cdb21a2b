"""Waivers: somebody answers for an exception that cannot be solved, with a reason."""

from billing.invoicing.models import BillingPeriod, ExceptionWaiver
from billing.tenancy.audit import audit_record

WAIVABLE = ("metering_gap", "quarantine", "conflict")


class WaiverError(ValueError):
    """An exception that may not be waived."""


def exception_waive(*, period: BillingPeriod, kind: str, subject: str, reason: str, actor: str) -> ExceptionWaiver:
    """Let the close go on despite an exception. Usage without owner or price cannot be waived: it must be solved."""
    if kind not in WAIVABLE:
        raise WaiverError(f"{kind} cannot be waived (only {', '.join(WAIVABLE)}): solve it")
    if not reason.strip():
        raise WaiverError("a waiver needs a reason")
    waiver, _ = ExceptionWaiver.objects.get_or_create(
        period=period, kind=kind, subject=subject, defaults={"reason": reason, "waived_by": actor}
    )
    audit_record(
        actor=actor, action="exception_waive", subject=f"{period.month} {kind} {subject}", detail={"reason": reason}
    )
    return waiver
