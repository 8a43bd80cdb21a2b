"""Optional fields of token records: validated by name, kept beside the ledger, compared with repeats, shown and proven."""

import csv
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.db import DatabaseError, connection, transaction
from django.test.utils import CaptureQueriesContext

from billing.api.token_reports import AT_ONCE_BYTES
from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.selectors import period_of
from billing.tenancy.tokens import api_token_create
from billing.usage.digests import digest_of_close
from billing.usage.services.sealing import ClosedMonth, usage_seal
from billing.usage.store.records import record_stored
from metering.intervals import billing_month
from metering.token_keys import token_key
from tests.factories import AFTER, apply, ingest_tokens, person, signed_in, token_record
from tests.factories.commands import TOKEN_ROW, Manage, file
from tests.factories.ingest import answer
from tests.factories.pages import statements_of
from tests.factories.token_endpoint import body, through_django
from tests.stored_rows import query, rewrite

pytestmark = pytest.mark.django_db
STATED: dict[str, Any] = {
    "service_tier": "flex", "deployment": "gpt-east-2", "hardware": "H800", "cache_creation_1h_input_tokens": 60,
    "audio_input_tokens": 300, "image_input_tokens": 400, "audio_output_tokens": 30, "image_output_tokens": 70,
    "searches": 2, "tool_calls": 3,
}  # fmt: skip
"""1,000 of input: 200 read, 100 written (60 of them for an hour), 700 else, all of them audio or images; 100 of output."""
FULL = token_record(1, cache_creation_input_tokens=100, **STATED)
DETAILS = f"SELECT {', '.join(STATED)} FROM token_detail ORDER BY key"
MANY = 200


@pytest.fixture(params=["array", "lines", "many"])
def post(request: pytest.FixtureRequest, token: str) -> Callable[..., dict[str, Any]]:
    """Send records as one array, line by line, or among so many that all are checked together."""

    numbers = count(1000)

    def send(*records: dict[str, Any]) -> dict[str, Any]:
        kind, content, more = {}, body(*records), 0
        if request.param == "lines":
            content = b"\n".join(json.dumps(record).encode() for record in records)
            kind = {"CONTENT_TYPE": "application/x-ndjson"}
        elif request.param == "many":
            content, more = body(*records, *(token_record(next(numbers)) for _ in range(MANY))), MANY
            assert len(content) > AT_ONCE_BYTES
        status, _, found = through_django(content, token, **kind)
        assert status == 200
        return {**found, "accepted": found["accepted"] - more}

    return send


@pytest.fixture
def token() -> str:
    return api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1]


def test_stated_fields_are_stored_beside_the_record(post: Callable[..., dict[str, Any]]) -> None:
    assert post(FULL, token_record(2)) == {"accepted": 2, "duplicates": 0, "conflicts": 0, "rejected": []}
    assert query(DETAILS) == [tuple(STATED.values())]
    assert query("SELECT input_tokens, cache_creation_input_tokens, output_tokens, epoch, tag_set FROM token_detail") == [
        (1000, 100, 100, 0, None)
    ]
    stored = record_stored(token_key("litellm-hq", "req-1"))
    assert stored is not None
    assert {name: stored[name] for name in STATED} == STATED
    assert "service_tier" not in (record_stored(token_key("litellm-hq", "req-2")) or {})


@pytest.mark.parametrize(("changed", "field", "said"), [
    ({"cache_creation_1h_input_tokens": 101}, "cache_creation_1h_input_tokens",
     "cache_creation_1h_input_tokens 101 is more than cache_creation_input_tokens 100, which contains it"),
    ({"audio_input_tokens": 301}, "audio_input_tokens",
     "audio_input_tokens 301 + image_input_tokens 400 is more than uncached input 700, which contains it"),
    ({"audio_output_tokens": None, "image_output_tokens": 101}, "image_output_tokens",
     "image_output_tokens 101 is more than output_tokens 100, which contains it"),
    ({"searches": -1}, "searches", "searches -1: expected `int` >= 0"),
    ({"tool_calls": "3"}, "tool_calls", 'tool_calls "3": expected `int | null`, got `str`'),
    ({"service_tier": ""}, "service_tier", 'service_tier "": expected `str` of length >= 1'),
    ({"deployment": " east"}, "deployment", "deployment: begins or ends with a blank"),
    ({"hardware": "H\u200b800"}, "hardware", "hardware: contains the character \\u200b (U+200B), which cannot be printed"),
])  # fmt: skip
def test_a_field_that_cannot_be_is_named_with_its_value(
    post: Callable[..., dict[str, Any]], changed: dict[str, Any], field: str, said: str
) -> None:
    found = post(FULL | changed, token_record(2))
    assert (found["accepted"], [item["error"] for item in found["rejected"]]) == (1, [said])
    assert query(DETAILS) == []


def test_a_field_that_occurs_twice_is_refused(token: str) -> None:
    twice = body(FULL).replace(b'"searches": 2', b'"searches": 2, "searches": 9')
    assert through_django(twice, token)[2]["rejected"][0]["error"].startswith("'searches' occurs twice")


@pytest.mark.parametrize(("first", "second", "same"), [
    ({}, {"service_tier": "flex"}, True),
    ({"service_tier": "flex"}, {}, True),
    ({"service_tier": "flex"}, {"service_tier": "Flex"}, True),
    ({"service_tier": "flex", "searches": 2}, {"service_tier": "flex", "tool_calls": 1}, True),
    ({"service_tier": "flex"}, {"service_tier": "batch"}, False),
    ({"service_tier": "default"}, {"service_tier": "standard"}, True),
    ({"service_tier": "auto"}, {"service_tier": "ON_DEMAND"}, True),
    ({"service_tier": "auto"}, {"service_tier": "priority"}, False),
    ({"searches": 0}, {"searches": 1}, False),
    ({"searches": 0}, {"searches": 0}, True),
    ({"audio_input_tokens": 5}, {"audio_input_tokens": 6}, False),
])  # fmt: skip
def test_only_different_values_of_one_field_are_a_conflict(
    post: Callable[..., dict[str, Any]], first: dict[str, Any], second: dict[str, Any], same: bool
) -> None:
    """Of a record that was stored before, and of one that is in the same report."""
    assert post(token_record(1, **first))["accepted"] == 1
    stored = query(DETAILS)
    again = post(token_record(1, **second))
    assert (again["duplicates"], again["conflicts"]) == ((1, 0) if same else (0, 1))
    assert query(DETAILS) == stored
    together = post(token_record(3, **first), token_record(3, **second))
    assert (together["accepted"], together["duplicates"], together["conflicts"]) == ((1, 1, 0) if same else (1, 0, 1))


def test_a_stated_field_is_no_excuse_for_other_content() -> None:
    ingest_tokens(FULL)
    assert answer(ingest_tokens(FULL | {"output_tokens": 101}))[:3] == (0, 0, 1)
    assert answer(ingest_tokens(FULL))[:3] == (0, 1, 0)


def test_records_without_such_fields_cost_no_statement(token: str) -> None:
    ingest_tokens(FULL, token_record(2))
    for records in ([token_record(number) for number in range(10, 10 + MANY)], [token_record(2), token_record(1)]):
        with CaptureQueriesContext(connection) as asked:
            ingest_tokens(*records)
        assert [item["sql"] for item in asked if "token_detail" in item["sql"]] == []


def test_the_database_keeps_what_was_stated() -> None:
    ingest_tokens(FULL)
    for statement in ("UPDATE token_detail SET service_tier = 'standard'", "DELETE FROM token_detail",
                      "TRUNCATE token_detail"):  # fmt: skip
        with pytest.raises(DatabaseError, match="reported usage is never changed"), transaction.atomic():
            query(statement)


def test_a_file_has_the_fields_as_optional_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apply(tmp_path)
    row = {**TOKEN_ROW, "service_tier": "batch", "searches": "4", "tool_calls": ""}
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row))
    writer.writeheader()
    writer.writerow(row)
    assert Manage(capsys)("import_usage", "tokens", file(tmp_path, text.getvalue())).status == 0
    assert query("SELECT service_tier, searches, tool_calls FROM token_detail") == [("batch", 4, None)]


def test_a_changed_field_stops_the_close_and_a_closed_month_no_longer_proves(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(1, service_tier="auto", searches=2), token_record(2))
    rewrite("UPDATE token_detail SET searches = 1")
    failing = [check.detail for check in build_report(period_of("2026-10"), now=AFTER).checks if not check.ok]
    assert failing == [f"1 details of token records not as reported, such as {query('SELECT key FROM token_detail')[0][0]}"]
    rewrite("UPDATE token_detail SET searches = 2")
    period_close(month="2026-10", actor="ops", now=AFTER)
    assert "details" in digest_of_close("2026-10", 1)
    assert [proof.holds for proof in period_verify(month="2026-10")] == [True]
    rewrite("DELETE FROM token_detail")
    faults = [proof.stored for proof in period_verify(month="2026-10") if not proof.holds]
    assert [fault.split()[0] for fault in faults] == ["details"]


def test_a_month_that_closed_before_there_were_such_fields_stays_proven(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(1))
    period_close(month="2026-10", actor="ops", now=AFTER)
    rewrite("UPDATE tenancy_auditentry SET detail = detail #- '{usage,details}' WHERE action = 'period_close'")
    assert "details" not in digest_of_close("2026-10", 1)
    assert all(proof.holds for proof in period_verify(month="2026-10"))


def test_the_page_of_an_hour_shows_what_a_request_stated(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(1, service_tier="auto", searches=2), token_record(2))
    statement = next(one for one in statements_of(is_group=False).statements if one.team.code == "nlp")
    line = next(line for line in statement.lines if line.key.kind == "tokens" and line.key.token_class == "input")
    wanted = {"month": "2026-10", "day": "2026-10-15", "hour": datetime(2026, 10, 15, 4, tzinfo=UTC).isoformat()}
    client = signed_in(person("nlp-lead", "lead", team="nlp"))
    page = client.get(f"/teams/nlp/lines/{line.digest}/", wanted).content.decode()
    assert page.count("service_tier standard · searches 2") == 1
    table = client.get(f"/teams/nlp/lines/{line.digest}/", {**wanted, "as": "csv", "table": "requests"}).content.decode()
    rows = list(csv.DictReader(io.StringIO(table.lstrip("\ufeff"))))
    assert [(row["id"], row["service_tier"], row["searches"]) for row in rows] == [
        ("req-1", "standard", "2"), ("req-2", "", "")
    ]  # fmt: skip


@pytest.mark.django_db(transaction=True)
def test_a_sealed_month_has_the_fields_in_a_file(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(1, service_tier="auto", searches=2), token_record(2))
    over = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
    period_close(month="2026-10", actor="ops", now=over)
    october = ClosedMonth("2026-10", billing_month("2026-10", "Asia/Shanghai"), "Asia/Shanghai", 1)
    seal, _ = usage_seal(closed=october, address=str(tmp_path / "archive"), actor="ops", now=over)
    assert seal.manifest["rows"]["details"] == 1
    (row,) = pq.read_table(tmp_path / "archive" / seal.folder / "details-00000.parquet").to_pylist()
    assert (row["consumer"], row["service_tier"], row["searches"], row["audio_input_tokens"]) == (
        "nlp-key-1", "standard", 2, None
    )  # fmt: skip
