"""A close asks the database as often for twelve teams as for three, and issuing for each hundred."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.closing.services.closing import period_close
from billing.invoices.models import Invoice
from billing.invoices.services.invoices import invoices_issue
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record

pytestmark = pytest.mark.django_db


def statements(month: str, codes: list[str]) -> tuple[int, int]:
    """How many closing and issuing took of a month in which each of some teams used devices and tokens."""
    at = f"{month}-10T00:00:00Z"
    held = {"started_at": at, "ended_at": f"{month}-10T02:00:00Z", "observed_until": None}
    ingest_allocations(*(allocation_record(f"{month}-{code}", namespace=code, **held) for code in codes))
    ingest_tokens(*(token_record(f"{month}-{code}", consumer=code, time=at) for code in codes))
    over = datetime(2026, int(month[5:]) + 1, 1, 0, 5, tzinfo=UTC)
    with CaptureQueriesContext(connection) as closing:
        period_close(month=month, actor="ops", now=over)
    with CaptureQueriesContext(connection) as issuing:
        assert invoices_issue(month=month, actor="ops", now=over) == len(codes)
    return len(closing), len(issuing)


def test_a_close_takes_as_many_statements_for_many_teams_as_for_few(tmp_path: Path) -> None:
    codes = [f"t{number:02}" for number in range(12)]
    owned: dict[str, Any] = {
        "teams": [{"code": code, "name": code, "cost_center": code} for code in codes],
        "ownership": [{"cluster": "hq-1", "namespace": code, "team": code, "valid_from": "2026-01-01"} for code in codes],
        "consumers": [
            {"source": "litellm-hq", "consumer": code, "team": code, "valid_from": "2026-01-01"} for code in codes
        ],
        "platform": None,
        "price_versions": [{**SET_UP["price_versions"][0], "valid_from": "2026-08-01T00:00:00+08:00"}],
    }
    apply(tmp_path, **owned)
    statements("2026-08", codes[:1])  # the first close has no other before it
    few = statements("2026-09", codes[:3])
    assert statements("2026-10", codes) == few
    assert Invoice.objects.count() == 16
