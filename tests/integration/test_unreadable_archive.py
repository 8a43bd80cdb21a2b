"""Records that are in an archive only, which is missing or damaged: every reader says which one and what to do."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from django.test import Client

from billing.closing.services.operations import operation_request, operation_run
from billing.portal.months import period_shown
from billing.portal.statements import month_statements
from billing.tenancy.models import BillingSetup, Team
from billing.usage.archive.sealed import seals
from billing.usage.models import QuarantinedRecord
from billing.usage.services.archiving import records_archive
from tests.factories import SET_UP, apply, ingest_tokens, person, signed_in, token_record
from tests.factories.api import program
from tests.factories.commands import Manage
from tests.factories.token_reads import CLOSED, sealed_october
from tests.stored_rows import postgresql_keeps

pytestmark = pytest.mark.django_db(transaction=True)

FILE = "tokens-00000.parquet"
MODEL = "llama-3-8b"
PRICES = {
    **SET_UP["price_versions"][0],
    "tokens": [
        {"model": MODEL, "up_to_tokens": 500, "input": "2.0000", "output": "8.0000"},
        {"model": MODEL, "input": "3.0000", "output": "8.0000"},
        {"model": "flat", "input": "1000.0000", "output": "1000.0000"},
    ],
}
COUNTS = {"cache_read_input_tokens": 0, "reasoning_output_tokens": 0}
RECORDS = [
    token_record(1, **COUNTS), token_record(2, model="flat", **COUNTS),
    token_record(3, model="flat", time="2026-10-15T12:30:00+08:00", **COUNTS),
]  # fmt: skip
DAY, HOUR = "2026-10-15", "2026-10-15T04:00:00+00:00"


def missing(folder: Path) -> str:
    shutil.rmtree(folder)
    return "No such file or directory"


def damaged(folder: Path) -> str:
    octets = bytearray((folder / FILE).read_bytes())
    octets[len(octets) // 2] ^= 1
    (folder / FILE).write_bytes(octets)
    return "has SHA-256"


@pytest.fixture(params=[missing, damaged])
def breaks(request: pytest.FixtureRequest) -> Callable[[Path], str]:
    made: Callable[[Path], str] = request.param
    return made


@pytest.fixture
def problem(breaks: Callable[[Path], str], tmp_path: Path) -> str:
    """As `october_left`, with a price by the length of prompts, which only the records say."""
    return october_left(tmp_path, PRICES, breaks)


def october_left(tmp_path: Path, prices: dict[str, object], breaks: Callable[[Path], str]) -> str:
    """October is billed, and its records are in an archive only, which somebody broke since; what is wrong with it."""
    apply(tmp_path, price_versions=[prices])
    with postgresql_keeps():
        ingest_tokens(*RECORDS)
    seal = sealed_october(tmp_path / "archive")
    assert records_archive(closed=CLOSED, seal=seal, actor="ops") == 3
    return breaks(tmp_path / "archive" / seal.folder)


def reader() -> Client:
    return signed_in(person("fin", "finance"))


def address(model: str, **asked: str) -> tuple[str, dict[str, str]]:
    october = period_shown("2026-10", BillingSetup.objects.get())
    (statement,) = month_statements(october, Team.objects.filter(code="nlp")).statements
    (line,) = [one for one in statement.lines if one.key.sku == model and one.key.token_class.startswith("output")]
    return f"/teams/nlp/lines/{line.digest}/", {"month": "2026-10", **asked}


def says(text: str, problem: str) -> None:
    """One sentence: which month, which archive, what is wrong with it, what to do."""
    folder = seals("2026-10")[0].folder
    for part in ("the usage records of 2026-10 are in the archive only", folder, problem, "usage_seal --verify"):
        assert part in text, part


def test_a_line_shows_the_facts_that_are_here_and_why_its_requests_are_not(
    breaks: Callable[[Path], str], tmp_path: Path
) -> None:
    """Two requests of 100 tokens of output at 1000 a million are 0.20: amount, days and hours are read from roll-ups."""
    flat = [row for row in PRICES["tokens"] if "up_to_tokens" not in row]
    problem = october_left(tmp_path, {**PRICES, "tokens": flat}, breaks)
    client = reader()
    for asked in ({}, {"day": DAY}):
        page = client.get(*address("flat", **asked)).content.decode()
        assert "An archive cannot be read" not in page
    answer = client.get(*address("flat", day=DAY, hour=HOUR))
    page = answer.content.decode()
    assert answer.status_code == 200
    says(page, problem)
    assert '<span class="result">0.20</span>' in page
    assert re.search(r"12:00.*0\.20", page, re.DOTALL)
    file = client.get(*address("flat", day=DAY, hour=HOUR, table="requests", **{"as": "csv"}))
    assert file.status_code == 503
    says(file.content.decode(), problem)


def test_a_line_whose_price_depends_on_the_length_of_prompts_keeps_its_amount(problem: str) -> None:
    page = reader().get(*address(MODEL)).content.decode()
    says(page, problem)
    assert "How the amount comes about" in page
    assert "Open a day to see its hours" not in page  # an empty table would say that nothing was used


def test_a_page_that_cannot_be_made_says_so_and_the_place_of_a_part_too(problem: str) -> None:
    lea = signed_in(person("adam", "admin", "finance"))
    whole = lea.get("/close/?month=2026-10")
    assert whole.status_code == 503
    says(whole.content.decode(), problem)
    part = lea.get("/close/?month=2026-10", headers={"HX-Request": "true"})
    assert (part.status_code, "<html" in part.content.decode()) == (200, False)
    says(part.content.decode(), problem)


def test_the_api_answers_503_with_a_problem(problem: str) -> None:
    answer = program("invoices:read").get("/api/v1/periods/2026-10/report")
    assert (answer.status_code, answer["Content-Type"]) == (503, "application/problem+json")
    body = answer.json()
    assert (body["status"], body["code"]) == (503, "archive_unreadable")
    says(body["detail"], problem)


def test_a_command_says_it_in_one_line(problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    says(Manage(capsys)("period_report", "2026-10").error, problem)


def test_an_operation_that_needs_it_fails_with_the_sentence(problem: str) -> None:
    operation = operation_request(kind="assess", month="2026-10", actor="fin")
    done = operation_run(operation_id=operation.pk)
    assert done.status == "failed"
    says(str(done.message), problem)


def test_a_record_beside_one_that_left_can_be_decided_still(problem: str) -> None:
    ingest_tokens({**RECORDS[0], "output_tokens": 101})
    entry = QuarantinedRecord.objects.get()
    page = signed_in(person("adam", "admin")).get(f"/quarantine/{entry.pk}/").content.decode()
    says(page, problem)
    assert json.loads(entry.record)["output_tokens"] == 101
    assert 'value="101"' in page
    assert "Dismiss" in page
