"""What belongs to a close is asked of a closed month: an open one has no close, and none passes for its own."""

from datetime import UTC, datetime

import pytest

from billing.exports.focus.hours import UsageOfClose
from billing.invoices.models import BillingPeriod
from billing.invoices.models.invoices import PeriodOpenError

START, END = datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC)
OCTOBER = {"month": "2026-10", "zone": "UTC", "start": START, "end": END}


def test_a_closed_month_has_the_number_of_its_close() -> None:
    assert BillingPeriod(**OCTOBER, status="closed", close_seq=7).close_number == 7
    assert BillingPeriod(**OCTOBER, status="closing", close_seq=8).close_number == 8


def test_an_open_month_has_no_close_number() -> None:
    with pytest.raises(PeriodOpenError, match="period 2026-10 is open: it has no close"):
        _ = BillingPeriod(**OCTOBER).close_number


def test_an_export_of_an_open_month_is_not_rated_by_an_empty_close() -> None:
    with pytest.raises(PeriodOpenError):
        UsageOfClose(BillingPeriod(**OCTOBER))
