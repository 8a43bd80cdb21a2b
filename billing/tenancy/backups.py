"""Times of the last backups and their proofs, from the audit log."""

from datetime import datetime

from django.db.models import Max

from billing.tenancy.models import AuditEntry


def last_backups() -> dict[str, datetime]:
    """Return the last time of each of `backup_take` and `backup_prove`; absent if never recorded."""
    return dict(AuditEntry.objects.filter(action__startswith="backup_").values_list("action").annotate(Max("at")))
