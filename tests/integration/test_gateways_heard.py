"""Until when each gateway has reported usage: one that went quiet beside one that goes on."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing.portal.months import period_shown
from billing.portal.sources import Sources
from billing.tenancy.models import BillingSetup
from tests.factories import AFTER, apply, ingest_tokens, token_record

pytestmark = pytest.mark.django_db


def used_until(now: datetime = AFTER) -> dict[str, datetime | None]:
    period = period_shown("2026-10", BillingSetup.objects.get())
    return {item.source: item.used_until for item in Sources(period, now).gateways}


def test_a_gateway_that_went_quiet_is_reported_with_its_own_last_hour(tmp_path: Path) -> None:
    """The other still reports two weeks later; after 31 days without usage the quiet one is no longer named."""
    apply(tmp_path)
    assert used_until() == {}
    ingest_tokens(token_record(1))
    assert used_until() == {"litellm-hq": datetime(2026, 10, 15, 5, tzinfo=UTC)}
    ingest_tokens(token_record(2, source="litellm-b", time="2026-10-29T03:59:59Z"))
    both = {"litellm-hq": datetime(2026, 10, 15, 5, tzinfo=UTC), "litellm-b": datetime(2026, 10, 29, 4, tzinfo=UTC)}
    assert used_until() == both
    ingest_tokens(token_record(3, time="2026-10-29T02:00:00Z"))
    assert used_until() == both | {"litellm-hq": datetime(2026, 10, 29, 3, tzinfo=UTC)}


def test_usage_of_more_than_a_month_ago_is_not_reported(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(1), token_record(2, source="litellm-b", time="2026-10-29T03:59:59Z"))
    assert used_until(datetime(2026, 11, 20, tzinfo=UTC)) == {"litellm-b": datetime(2026, 10, 29, 4, tzinfo=UTC)}
    assert used_until(datetime(2026, 12, 20, tzinfo=UTC)) == {}
