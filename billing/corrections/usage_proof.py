"""Reading: whether the usage of a closed month is still what was reported, and what its close saw.

The close leaves a digest of the usage that it billed in the audit log, whose entries are chained.
"""

from billing.invoices.models import BillingPeriod
from billing.tenancy.models import AuditEntry
from billing.usage.altered import usage_altered
from billing.usage.digests import usage_digest
from billing.usage.token_sums import rollup_difference
from metering.intervals import Interval

AS_REPORTED = "as reported"


def usage_faults(period: BillingPeriod) -> list[tuple[str, str]]:
    """What should be and what is, for each kind of usage that was changed; nothing, as a rule."""
    window = Interval(period.start, period.end)
    faults: list[tuple[str, str]] = [(AS_REPORTED, item.detail) for item in usage_altered(window)]
    moved = {name: count for name, count in rollup_difference(window).items() if count}
    if moved:
        told = ", ".join(f"{name} {count:+d}" for name, count in moved.items())
        faults.append(("token roll-ups = token events", told))
    seen, now = digest_of_close(period), usage_digest(window, period.close_number)
    return faults + [(f"{kind} {seen[kind]}", f"{kind} {now[kind]}") for kind in seen if seen[kind] != now.get(kind)]


def digest_of_close(period: BillingPeriod) -> dict[str, str]:
    """What the close of a period noted of its usage; nothing where an older release made it."""
    closes = AuditEntry.objects.filter(action="period_close", subject=period.month, detail__close_seq=period.close_number)
    entry = closes.order_by("-id").first()
    return {} if entry is None else dict(entry.detail.get("usage", {}))
