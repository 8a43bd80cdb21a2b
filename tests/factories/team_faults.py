"""Two teams, and stored values that nobody could report."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.efficiency import BANDS, job
from tests.stored_rows import rewrite_as_reported

MONTH, OVER = "2026-10", datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
NOT_A_NUMBER = "ValueError: cannot convert NaN to integer ratio"


def two_teams(directory: Path, **changed: Any) -> None:
    apply(directory, efficiency_policies=[BANDS], **changed)
    ingest_allocations(allocation_record(1))
    job(2, "0.55", "0.60", namespace="cv")


def measured_is(mfu: str) -> None:
    as_a_fault_of_the_disk("UPDATE usage_efficiencysample SET mfu = %s", mfu)


def committed_is(hours: str) -> None:
    as_a_fault_of_the_disk("UPDATE rates_commitment SET gpu_hours = %s", hours)


def as_a_fault_of_the_disk(statement: str, value: str) -> None:
    """What triggers would not let anybody do."""
    rewrite_as_reported(statement, [value])
