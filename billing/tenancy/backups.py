"""When the last backup was taken and proven, as the audit log notes it."""

from datetime import datetime

from django.db.models import Max

from billing.tenancy.models import AuditEntry


def last_backups() -> dict[str, datetime]:
    """When each of `backup_take` and `backup_prove` was noted last; nothing for what never was."""
    return dict(AuditEntry.objects.filter(action__startswith="backup_").values_list("action").annotate(Max("at")))
