"""Two closed months with a dearer price, more usage, a new job and a team that stopped: every reason for a change."""

from datetime import UTC, datetime
from pathlib import Path

from billing.closing.services.closing import period_close
from tests.factories import apply, ingest_allocations
from tests.factories.closing import version
from tests.factories.months import OCTOBER_OVER
from tests.factories.usage import hold

SEPTEMBER_OVER = datetime(2026, 10, 1, 0, 5, tzinfo=UTC)


def two_months(directory: Path) -> None:
    """nlp: 10.00 for 1 h in September, 50.00 for 4 h at 12.50 in October; cv: 20.00 for 2 h in September, then nothing.

    The price of an hour goes from 10.00 to 12.50 with October. `pretrain` ran in both months, `tune` is new.
    """
    september = version("september", "2026-08-31T16:00:00Z", "10.0000")
    apply(directory, price_versions=[september, version("october", "2026-09-30T16:00:00Z", "12.5000")])
    ingest_allocations(
        hold(1, "2026-09-10T00:00:00Z", "2026-09-10T01:00:00Z", quantity=1, workload={"kind": "Job", "name": "pretrain"}),
        hold(2, "2026-09-10T00:00:00Z", "2026-09-10T02:00:00Z", quantity=1, namespace="cv"),
        hold(3, "2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", quantity=1, workload={"kind": "Job", "name": "pretrain"}),
        hold(4, "2026-10-12T00:00:00Z", "2026-10-12T02:00:00Z", quantity=1, workload={"kind": "Job", "name": "tune"}),
    )  # fmt: skip
    period_close(month="2026-09", actor="ops", now=SEPTEMBER_OVER)
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
