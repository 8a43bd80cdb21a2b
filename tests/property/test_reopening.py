"""However often a month is opened again and whatever is learned in between, its last close bills what one close would."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.closing.services.closing import period_close
from billing.closing.services.reopening import reopening_approve, reopening_request
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice
from billing.invoices.services.invoices import invoices_issue
from billing.usage.models import Close
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, person
from tests.factories.months import OCTOBER_OVER
from tests.hypothesis_profile import examples

pytestmark = pytest.mark.django_db
SEPTEMBER_OVER = datetime(2026, 10, 1, 0, 5, tzinfo=UTC)
ALLOWED = {**SET_UP["billing"], "reopening": "two-persons"}
PRICES = [{**SET_UP["price_versions"][0], "valid_from": "2026-09-01T00:00:00+08:00"}]
STEPS = st.lists(
    st.tuples(st.sampled_from(["2026-09", "2026-10"]), st.integers(1, 40), st.booleans()), min_size=1, max_size=6
)
"""Hours of one GPU at 10.0000 that are reported of a month, and whether October is closed and opened again after them."""


def reported(number: int, month: str, hours: int) -> None:
    end = (datetime.fromisoformat(f"{month}-10T00:00:00+00:00") + timedelta(hours=hours)).isoformat()
    ingest_allocations(
        allocation_record(
            number, quantity=1, started_at=f"{month}-10T00:00:00Z", ended_at=end, observed_until=end
        )
    )  # fmt: skip


def closed_and_reopened() -> None:
    period_close(month="2026-10", actor="lin", now=OCTOBER_OVER)
    asked = reopening_request(month="2026-10", reason="more came", actor="lin", now=OCTOBER_OVER)
    reopening_approve(reopening_id=asked.pk, actor="ada", now=OCTOBER_OVER)


def bill_in_many_goes(steps: list[tuple[str, int, bool]], directory: Path) -> None:
    apply(directory, billing=ALLOWED, price_versions=PRICES)
    person("lin", "finance")
    person("ada", "approver")
    reported(0, "2026-09", 1)
    period_close(month="2026-09", actor="lin", now=SEPTEMBER_OVER)
    assert invoices_issue(month="2026-09", actor="lin", now=SEPTEMBER_OVER) == 1
    for number, (month, hours, reopens) in enumerate(steps, start=1):
        reported(number, month, hours)
        if reopens:
            closed_and_reopened()
    period_close(month="2026-10", actor="lin", now=OCTOBER_OVER)
    assert invoices_issue(month="2026-10", actor="lin", now=OCTOBER_OVER) == 1
    own = 10 * sum(hours for month, hours, _ in steps if month == "2026-10")
    late = 10 * sum(hours for month, hours, _ in steps if month == "2026-09")
    issued = Invoice.objects.exclude(number=None).order_by("number")
    assert list(issued.values_list("number", "total")) == [
        ("AI-INFRA-2026-000001", Decimal("10.00")), ("AI-INFRA-2026-000002", Decimal(own + late)),
    ]  # fmt: skip
    corrected = issued[1].lines.filter(correction=True).values_list("amount", flat=True)
    assert sum(corrected, Decimal(0)) == late
    assert Close.objects.filter(withdrawn_at=None).count() == 2
    assert all(proof.holds for month in ("2026-09", "2026-10") for proof in period_verify(month=month))


@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_the_last_close_bills_all_that_was_learned_once(steps: list[tuple[str, int, bool]]) -> None:
    with TemporaryDirectory() as directory, transaction.atomic():
        bill_in_many_goes(steps, Path(directory))
        transaction.set_rollback(True)  # nothing of an example stays for the next
