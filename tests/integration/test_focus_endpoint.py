"""FOCUS over HTTP: the rows of the files, page by page, of months whose documents are all issued."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from billing.closing.services.closing import period_close
from billing.closing.services.operations import operation_run, operations_pending
from billing.exports.models import FocusPart, FocusSet
from billing.exports.services import focus_rows
from billing.exports.services.focus import UnexplainedError
from billing.invoices.models import Invoice, Operation
from billing.invoices.services.invoices import invoices_issue
from billing.tenancy.models import Team
from billing.tenancy.tokens import api_token_create
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, person, signed_in, token_record
from tests.factories.corrections import bill
from tests.factories.pages import file_rows

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
Get = Callable[..., Any]


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
    bill()


def assert_rows_are_those_of_the_files(get: Get, directory: Path) -> None:
    call_command("export_focus", "2026-10", "--out", str(directory))
    for data_set, count in (("cost-and-usage", 4), ("invoice-detail", 2), ("billing-period", 1)):
        page = get(f"2026-10?data_set={data_set}").json()
        rows = file_rows(directory / f"focus-{data_set}-2026-10.csv")
        assert (page["count"], page["next"], page["previous"]) == (count, None, None)
        assert [{name: value or "" for name, value in row.items()} for row in page["results"]] == rows


def test_the_rows_are_those_of_the_files(get: Get, issued: None, tmp_path: Path) -> None:
    assert_rows_are_those_of_the_files(get, tmp_path)


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


@pytest.fixture
def large(issued: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The month has two lines, more than a request may make rows of by itself."""
    monkeypatch.setattr(focus_rows, "AT_ONCE", 1)


def work() -> str:
    """What a worker makes of the operation that is asked for."""
    (pending,) = operations_pending()
    return operation_run(operation_id=pending).message


def test_rows_of_a_large_month_are_made_by_a_worker_and_are_the_same(get: Get, large: None, tmp_path: Path) -> None:
    for _ in range(2):  # who asks again asks for nothing new
        answer = get("2026-10")
        assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
        assert int(answer.headers["Retry-After"]) > 0
        assert "2026-10 are being made by a worker" in answer.json()["detail"]
    assert FocusSet.objects.count() == 0
    assert work() == "7 rows of FOCUS made"
    assert_rows_are_those_of_the_files(get, tmp_path)


@pytest.mark.parametrize("rows_of_part", [1, 3, 4])
def test_pages_are_the_same_however_the_rows_are_kept(
    get: Get, large: None, monkeypatch: pytest.MonkeyPatch, rows_of_part: int
) -> None:
    monkeypatch.setattr(focus_rows, "ROWS_OF_PART", rows_of_part)
    get("2026-10")
    work()
    whole = get("2026-10").json()["results"]
    assert len(whole) == 4
    for size in (1, 2, 3):
        pages = [get(f"2026-10?page={number}&page_size={size}").json()["results"] for number in range(1, -(-4 // size) + 1)]
        assert [row for page in pages for row in page] == whole
    assert FocusSet.objects.get(data_set="cost-and-usage").parts.count() == -(-4 // rows_of_part)


def test_what_is_kept_is_of_the_documents_that_are_issued(get: Get, large: None) -> None:
    """A document that comes later makes them stale: they are made again, and nothing is shown of the month before that."""
    get("2026-10")
    work()
    assert get("2026-10").status_code == 200
    FocusSet.objects.update(documents="0" * 64)
    assert get("2026-10").status_code == 503
    assert work() == "7 rows of FOCUS made"
    assert get("2026-10").json()["count"] == 4


def test_a_line_that_its_usage_no_longer_explains_is_reported_and_tried_again_later(
    get: Get, large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    get("2026-10")
    monkeypatch.setattr(focus_rows, "focus_export", unexplained)
    assert work() == "line 1 no longer follows from its usage"
    refused = get("2026-10")
    assert (refused.status_code, refused.json()["detail"]) == (409, "line 1 no longer follows from its usage")
    assert operations_pending() == []
    monkeypatch.undo()
    monkeypatch.setattr(focus_rows, "AT_ONCE", 1)
    Operation.objects.update(finished_at=timezone.now() - focus_rows.ASKED_AGAIN)
    assert get("2026-10").status_code == 503
    assert work() == "7 rows of FOCUS made"
    assert get("2026-10").json()["count"] == 4


def unexplained(**_: Any) -> None:
    raise UnexplainedError("line 1 no longer follows from its usage")


def test_a_worker_that_dies_leaves_what_was_there_whole(get: Get, large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    get("2026-10")
    work()
    with monkeypatch.context() as dying:
        dying.setattr(focus_rows.FocusPart.objects, "create", died)
        with pytest.raises(KeyboardInterrupt):
            focus_rows.focus_make(month="2026-10", now=OVER)
    assert get("2026-10").json()["count"] == 4


@pytest.mark.django_db(transaction=True)
def test_two_who_ask_first_at_once_are_both_answered(get: Get, issued: None, monkeypatch: pytest.MonkeyPatch) -> None:
    made, both = focus_rows.focus_export, threading.Barrier(2)

    def together(**how: Any) -> Any:
        found = made(**how)
        both.wait(timeout=60)
        return found

    monkeypatch.setattr(focus_rows, "focus_export", together)

    def make(_: int) -> int:
        try:
            return focus_rows.focus_make(month="2026-10", now=OVER)
        finally:
            connection.close()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(make, range(2))) == [7, 7]
    assert FocusSet.objects.count() == 3
    assert get("2026-10").json()["count"] == 4


def died(**_: Any) -> None:
    raise KeyboardInterrupt


def test_what_an_older_release_kept_is_made_again(get: Get, issued: None, tmp_path: Path) -> None:
    """It knew the same documents by the hash of their names, and one column less."""
    get("2026-10")
    part = FocusPart.objects.get(focus_set__data_set="cost-and-usage")
    older, content = pq.read_table(BytesIO(part.content)).drop_columns(["x_CarbonKg"]), BytesIO()
    pq.write_table(older, content)
    FocusPart.objects.filter(pk=part.pk).update(content=content.getvalue())
    names = [f"{invoice.number} {invoice.sha256}" for invoice in Invoice.objects.all()]
    FocusSet.objects.update(documents=sha256("\n".join(names).encode()).hexdigest())

    assert_rows_are_those_of_the_files(get, tmp_path)
    archive = signed_in(person("fin", "finance")).post("/close/2026-10/focus/")
    assert archive.status_code == 200
    archive.close()


def test_only_the_months_that_were_made_last_are_kept(get: Get, issued: None) -> None:
    for number, month in enumerate(("2026-01", "2026-02", "2026-03")):
        made_at = OVER - timedelta(days=9 - number)
        FocusSet.objects.create(month=month, data_set="cost-and-usage", documents="0" * 64, rows=0, made_at=made_at)
    get("2026-10")
    assert sorted(set(FocusSet.objects.values_list("month", flat=True))) == ["2026-02", "2026-03", "2026-10"]


def test_who_may_not_see_every_team_finds_nothing(get: Get, issued: None) -> None:
    assert get("2026-10", team=Team.objects.get(code="nlp")).status_code == 404
    strange = get("2026-10?data_set=x")
    assert (strange.status_code, strange.json()["title"]) == (400, "Malformed request")
    assert "billing-period" in strange.json()["detail"]
