"""The audit log: every change to money, prices and ownership, by whom."""

from typing import Any

from billing.tenancy.models import AuditEntry


def audit_record(*, actor: str, action: str, subject: str, detail: dict[str, Any] | None = None) -> None:
    """Append one entry, in the transaction of the change itself."""
    AuditEntry.objects.create(actor=actor[:200], action=action, subject=subject[:300], detail=detail or {})
