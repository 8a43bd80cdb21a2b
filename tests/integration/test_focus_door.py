"""FOCUS over HTTP: the rows of the files, page by page, of months whose documents are all issued."""

import csv
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import override_settings

from billing.invoicing.services import invoices_issue, period_close
from billing.tenancy.models import Team
from billing.tenancy.tokens import api_token_create
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, token_record

pytestmark = pytest.mark.django_db

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
Get = Callable[..., Any]


@pytest.fixture(autouse=True, scope="session")
def static_root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """WhiteNoise warns where nobody has collected static files yet, and warnings are errors."""
    with override_settings(STATIC_ROOT=tmp_path_factory.mktemp("static")):
        yield


@pytest.fixture
def get(client: Any) -> Get:
    def read(path: str, **bounds: Any) -> Any:
        presented = api_token_create(name="reader", scopes=["invoices:read"], actor="tests", **bounds)[1]
        return client.get(f"/api/v1/focus/{path}", headers={"Authorization": f"Bearer {presented}"})

    return read


@pytest.fixture
def used(tmp_path: Path) -> None:
    """209.62 of GPUs (2 h 37 min 13 s of 8 at 10) and 1 M tokens of input at 2 for one team, both in October."""
    apply(tmp_path)
    ingest_allocations(allocation_record(1))
    counts = {"cache_read_input_tokens": 0, "output_tokens": 0, "reasoning_output_tokens": 0}
    ingest_tokens(token_record(input_tokens=1_000_000, **counts))


@pytest.fixture
def issued(used: None) -> None:
    period_close(month="2026-10", actor="ops", now=OVER)
    invoices_issue(month="2026-10", actor="ops", now=OVER)


def test_the_rows_are_those_of_the_files(get: Get, issued: None, tmp_path: Path) -> None:
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    for data_set, count in (("cost-and-usage", 4), ("invoice-detail", 2), ("billing-period", 1)):
        page = get(f"2026-10?data_set={data_set}").json()
        with (tmp_path / f"focus-{data_set}-2026-10.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert (page["count"], page["next"], page["previous"]) == (count, None, None)
        assert [{name: value or "" for name, value in row.items()} for row in page["results"]] == rows


def test_amounts_are_decimal_strings_and_add_up_over_the_pages(get: Get, issued: None) -> None:
    pages = [get(f"2026-10?page={number}&page_size=3").json() for number in (1, 2)]
    assert [len(page["results"]) for page in pages] == [3, 1]
    assert "page=2" in pages[0]["next"]
    costs = [row["BilledCost"] for page in pages for row in page["results"]]
    assert all(isinstance(cost, str) for cost in costs)
    assert sum(map(Decimal, costs)) == Decimal("211.62")
    assert get("2026-10?page=3&page_size=3").status_code == 404


def test_a_month_that_is_not_issued_is_refused_as_by_the_command(get: Get, used: None) -> None:
    assert get("2026-10").status_code == 404  # nobody has opened it
    period_close(month="2026-10", actor="ops", now=OVER)
    refused = get("2026-10")
    assert (refused.status_code, refused.headers["Content-Type"]) == (409, "application/problem+json")
    assert "invoice_issue 2026-10" in refused.json()["detail"]
    invoices_issue(month="2026-10", actor="ops", now=OVER)
    assert get("2026-10").json()["count"] == 4


def test_who_may_not_see_every_team_finds_nothing(get: Get, issued: None) -> None:
    assert get("2026-10", team=Team.objects.get(code="nlp")).status_code == 404
    strange = get("2026-10?data_set=x")
    assert (strange.status_code, strange.json()["title"]) == (400, "Malformed request")
    assert "billing-period" in strange.json()["detail"]
