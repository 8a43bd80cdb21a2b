"""Four months of spending with a budget over them."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.utils import timezone

from billing.budgets.models import Budget, Channel
from billing.budgets.services import budgets_evaluate, days_store, findings_update, forecasts_update, standings_refresh
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations

SINCE = "2024-01-01T00:00:00+08:00"


@pytest.fixture
def past(tmp_path: Path) -> Budget:
    """Four months of working days and weekends up to now, and yesterday ten times as much."""
    ownership = [{**row, "valid_from": SINCE} for row in SET_UP["ownership"]]
    price = {**SET_UP["price_versions"][0], "valid_from": SINCE}
    ladder = [{"at": "80", "action": "rate_limit", "tokens_per_minute": "200000", "floor": "20000"},
              {"at": "100", "action": "cap"}]  # fmt: skip
    budgets = [{"team": "nlp", "amount": "40000.00", "owner": "Ann Lee", "name": "NLP everything", "ladder": ladder}]
    apply(tmp_path, ownership=ownership, price_versions=[price], budgets=budgets)
    now = timezone.now()
    today = now.astimezone(ZoneInfo("Asia/Shanghai")).date()
    records = [_day(today - timedelta(days=back), 80 if back == 1 else 0) for back in range(1, 130)]
    ingest_allocations(*records, now=now)
    days_store(now=now)
    standings_refresh(now=now)
    forecasts_update(now=now)
    findings_update(now=now)
    found = Budget.objects.get()
    found.channels.add(Channel.objects.create(name="ops-room", url="json://127.0.0.1/secret"))
    budgets_evaluate(now=now)
    return found


def _day(day: Any, extra: int) -> dict[str, Any]:
    start = datetime(day.year, day.month, day.day, tzinfo=ZoneInfo("Asia/Shanghai"))
    end = start + timedelta(hours=12)
    quantity = (3 if day.weekday() >= 5 else 9 + day.day % 3) + extra
    return allocation_record(
        day.toordinal(), quantity=quantity, started_at=start.isoformat(), ended_at=end.isoformat(),
        observed_until=end.isoformat(),
    )  # fmt: skip
