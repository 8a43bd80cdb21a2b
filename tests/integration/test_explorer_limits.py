"""Sums that are too large for the columns of the explorer."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.http import QueryDict

from billing.explorer.models import MonthCube
from billing.explorer.query import query_of
from billing.explorer.selectors import Explored, Explorer
from tests.factories import SET_UP, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import bill
from tests.factories.months import OCTOBER_OVER
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 3, 4, tzinfo=UTC)


def explored(text: str) -> Explored:
    MonthCube.objects.all().delete()
    explorer = Explorer(frozenset(("nlp", "cv")), NOW, "Asia/Shanghai")
    return explorer.explore(query_of(QueryDict(f"month=2026-10&by=team&{text}"), date(2026, 11, 3), 1))


def test_a_team_whose_sums_no_column_holds_is_named_and_changes_no_other(tmp_path: Path) -> None:
    """cv: 60 requests of 2 x 10^15 tokens at 1,000,000 per million: 1.2 x 10^17, in cents beyond 64 bits."""
    dear = {"model": "dear", "input": "1000000.0000", "cache_read": "0", "output": "1000000.0000"}
    theirs = {"source": "litellm-hq", "consumer": "cv-key", "team": "cv", "valid_from": "2026-01-01"}
    apply(tmp_path, price_versions=[{**SET_UP["price_versions"][0], "tokens": [dear]}], consumers=[theirs])
    ingest_allocations(hold(1, "2026-10-10T00:00:00Z", "2026-10-10T02:00:00Z", quantity=1))
    most = {"input_tokens": 10**15, "cache_read_input_tokens": 0, "output_tokens": 10**15, "reasoning_output_tokens": 0}
    ingest_tokens(*(token_record(number, consumer="cv-key", model="dear", **most) for number in range(60)))
    for step in ("day", "hour"):
        found = explored(f"step={step}")
        assert {group.names: group.total for group in found.groups} == {("nlp",): Decimal("20.00")}
        assert found.unrated == {"cv": "its sums of 2026-10 are too large for the explorer; its documents have them"}
    bill("2026-10", OCTOBER_OVER)
    found = explored("step=day")
    assert (found.total.total, [*found.unrated]) == (Decimal("20.00"), ["cv"])
