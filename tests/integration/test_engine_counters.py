"""What gateways reported beside what inference servers counted: restarts, replicas, midnights, gaps; by hand to the
token."""

import gzip
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.test import Client

from billing.closing.report import Report, build_report
from billing.closing.services.waivers import exception_waive
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.tenancy.tokens import api_token_create
from billing.usage.management.commands.import_usage import INGEST
from billing.usage.models import EngineReading as EngineReadingRow
from billing.usage.models import QuarantinedRecord
from billing.usage.reconciliation import EngineDay, engine_days
from billing.usage.services import IngestOutcome, Reporter, engine_readings_ingest
from billing.usage.services.replay import ReplayError, quarantine_replay, record_kind, refusal_of
from billing.usage.side_by_side import record_fields
from metering.intervals import Interval, billing_month
from metering.records import EngineReading, decode_batch
from tests.factories import AFTER, SHANGHAI_OCTOBER, apply, ingest_tokens, person, token_record
from tests.factories.api import program

pytestmark = pytest.mark.django_db
MIDNIGHT = datetime(2026, 10, 14, 16, tzinfo=UTC)
"""Of the 15th in Shanghai."""


def reading(minutes: int, prompt: int, generation: int, *, replica: str = "pod-1", **changed: Any) -> dict[str, Any]:
    """A reading so many minutes after the midnight that begins the 15th."""
    time = MIDNIGHT + timedelta(minutes=minutes)
    return {"source": "vllm-hq", "replica": replica, "model": "llama-3-8b", "time": time.isoformat(),
            "prompt_tokens": prompt, "generation_tokens": generation, **changed}  # fmt: skip


def ingest(*readings: dict[str, Any], reporter: Reporter | None = None) -> IngestOutcome:
    batch = decode_batch(EngineReading, [json.dumps(item).encode() for item in readings])
    return engine_readings_ingest(
        records=[(index, record, b"{}") for index, record in batch.records], rejected=batch.rejected,
        reporter=reporter or Reporter("tests", "usage/engine-counters"), now=AFTER,
    )  # fmt: skip


def days() -> list[EngineDay]:
    return engine_days(Interval(*SHANGHAI_OCTOBER), "Asia/Shanghai")


def day(number: int = 15) -> EngineDay:
    return {item.day: item for item in days()}[date(2026, 10, number)]


def counted(number: int = 15) -> tuple[int, int]:
    return day(number).engine_input, day(number).engine_output


def started(minutes: int) -> str:
    return (MIDNIGHT + timedelta(minutes=minutes)).isoformat()


def test_a_counter_grew_by_the_difference_of_its_readings_and_the_first_shows_no_growth() -> None:
    ingest(reading(-5, 1000, 100), reading(5, 1500, 150), reading(600, 9000, 900), reading(1445, 9700, 950))
    assert counted(14) == (0, 0)
    assert counted(15) == (8000, 800), "1000 -> 9000 and 100 -> 900; the growth after midnight is the next day's"
    assert counted(16) == (700, 50)


def test_replicas_are_counted_each_by_itself() -> None:
    ingest(reading(-5, 100, 10), reading(700, 400, 40), reading(-5, 5000, 500, replica="pod-2"),
           reading(700, 5007, 501, replica="pod-2"))  # fmt: skip
    assert counted() == (307, 31)


def test_a_counter_that_fell_was_set_back_and_has_grown_by_what_it_shows() -> None:
    ingest(reading(-5, 1000, 100), reading(10, 1100, 110), reading(20, 30, 3), reading(30, 50, 5))
    assert counted() == (100 + 30 + 20, 10 + 3 + 2)


def test_a_restart_is_seen_by_its_start_where_the_counter_does_not_fall() -> None:
    ingest(reading(-5, 1000, 100, started_at=started(-9000)), reading(10, 1100, 110, started_at=started(-9000)),
           reading(20, 2000, 200, started_at=started(12)))  # fmt: skip
    assert counted() == (100 + 2000, 10 + 200)


def test_a_server_that_was_started_today_has_counted_today_what_it_shows_first() -> None:
    ingest(reading(30, 500, 50, started_at=started(10)), reading(40, 800, 80, started_at=started(10)))
    assert counted() == (800, 80)


def test_a_day_can_be_compared_if_readings_reach_over_both_its_ends() -> None:
    ingest(reading(-5, 0, 0), reading(1445, 10, 1), reading(1500, 20, 2))
    assert [day(number).comparable for number in (14, 15, 16)] == [False, True, False]
    ingest(reading(5, 0, 0, model="other", started_at=started(-1)), reading(1441, 10, 1, model="other"))
    others = [item for item in days() if item.model == "other"]
    assert [item.day.day for item in others if item.comparable] == [15]


def test_in_a_zone_of_half_an_hour_both_sides_have_the_same_days() -> None:
    """The 15th begins at 18:30 UTC in India. Gateways' tokens are summed by the hour: both sides count it from 19:00 on."""
    october = billing_month("2026-10", "Asia/Kolkata")
    ingest_tokens(token_record(1, time="2026-10-14T18:35:00Z", input_tokens=1000, output_tokens=100))
    ingest(reading(145, 0, 0), reading(160, 1000, 100), reading(1625, 1000, 100))  # 18:25, 18:40, 19:05 of the 15th
    found = {item.day.day: item for item in engine_days(october, "Asia/Kolkata")}
    assert (found[14].gateway_input, found[14].gateway_output, found[14].comparable) == (1000, 100, False)
    assert (found[14].engine_input, found[14].engine_output) == (1000, 100)
    assert found[15] == EngineDay("llama-3-8b", date(2026, 10, 15), 0, 0, 0, 0, comparable=True)
    assert (min(found), max(found)) == (1, 31)


# Reporting


def test_a_reading_again_is_a_duplicate_and_another_of_the_same_time_a_conflict() -> None:
    assert ingest(reading(0, 1, 1)).accepted == 1
    outcome = ingest(reading(0, 1, 1), reading(0, 2, 1))
    assert (outcome.accepted, outcome.duplicates, outcome.conflicts) == (0, 1, 1)
    assert "was reported before with other content" in outcome.refusals[0].error


def test_a_token_reports_for_its_own_source_and_not_of_the_future() -> None:
    bound = Reporter("tests", "usage/engine-counters", "other", 300)
    assert "may report for 'other' only" in ingest(reading(0, 1, 1), reporter=bound).refusals[0].error
    tomorrow = (AFTER + timedelta(days=1)).isoformat()
    outcome = ingest(reading(0, 1, 1, time=tomorrow), reporter=Reporter("tests", "d", "", 300))
    assert outcome.refusals[0].reason == "future"


def test_readings_never_change() -> None:
    ingest(reading(0, 1, 1))
    for statement in ("UPDATE usage_enginereading SET prompt_tokens = 0", "DELETE FROM usage_enginereading"):
        with pytest.raises(IntegrityError, match="what was counted is never changed"), transaction.atomic():
            connection.cursor().execute(statement)


def test_the_endpoint_takes_readings_and_names_what_is_wrong() -> None:
    _, token = api_token_create(name="engines", scopes=["usage:write"], actor="tests")
    late = reading(0, 1, 1, started_at=started(5))
    body = json.dumps([reading(0, 1, 1), {**reading(1, 1, 1), "prompt_tokens": -1}, late]).encode()
    response = Client().post(
        "/api/v1/usage/engine-counters", gzip.compress(body), content_type="application/json",
        headers={"Authorization": f"Bearer {token}", "Content-Encoding": "gzip"},
    )  # fmt: skip
    answer = response.json()
    assert (response.status_code, answer["accepted"]) == (200, 1)
    assert [item["index"] for item in answer["rejected"]] == [1, 2]
    assert "prompt_tokens -1" in answer["rejected"][0]["error"]
    assert "is before started_at" in answer["rejected"][1]["error"]


def test_a_file_of_readings_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "engines.csv"
    path.write_text(
        "source,replica,model,time,started_at,prompt_tokens,generation_tokens\n"
        "vllm-hq,pod-1,llama-3-8b,2026-10-14T23:55:00+08:00,,1000,100\n"
        "vllm-hq,pod-1,llama-3-8b,2026-10-15T12:00:00+08:00,,4000,400\n"
    )
    call_command("import_usage", "engine", str(path))
    assert counted() == (3000, 300)


# The report


@pytest.fixture(scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests)


def october() -> Report:
    return build_report(period_of("2026-10"), now=AFTER)


def engines_count(prompt: int, generation: int) -> None:
    """Readings that cover the 15th, and that much growth on it."""
    ingest(reading(-5, 7000, 700), reading(900, 7000 + prompt, 700 + generation),
           reading(1445, 7000 + prompt, 700 + generation))  # fmt: skip


def check(report: Report) -> tuple[bool, str]:
    (found,) = [item for item in report.checks if item.name.startswith("gateway tokens = inference")]
    return found.ok, found.detail


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"source": "other"}, 403), ({"watermark": "2090-01-01T00:00:00Z"}, 400),
        ({"watermark": "2026-10-20T00:00:00"}, 400), ({"agent": ""}, 400), ({"more": 1}, 400), ({"agent": "a" * 600}, 400),
    ],
)  # fmt: skip
def test_a_wrong_watermark_is_refused(changed: dict[str, Any], status: int) -> None:
    assert watermark(**changed).status_code == status


@pytest.mark.usefixtures("set_up")
def test_within_half_a_percent_all_is_well_and_one_token_more_is_not() -> None:
    ingest_tokens(token_record(1, input_tokens=199_000, output_tokens=1000))
    engines_count(200_000, 1000)
    report = october()
    assert report.closable
    assert check(report) == (
        True, "llama-3-8b: 1,000 of 201,000 tokens differ, 1 of 31 days compared"
    )  # fmt: skip
    engines_again = reading(901, 207_001, 1700)
    ingest(engines_again)
    assert not october().closable, "1,001 of 200,001 is more than 0.5 %"


@pytest.mark.usefixtures("set_up")
def test_a_month_that_differs_blocks_the_close_until_somebody_takes_it_on() -> None:
    ingest_tokens(token_record(1, input_tokens=150_000, output_tokens=1000))
    engines_count(200_000, 1100)
    report = october()
    month, one_day = (item for item in report.exceptions if item.kind.startswith("engine_difference"))
    assert (month.kind, month.subject, month.quantity, month.unit, month.blocks) == (
        "engine_difference", "llama-3-8b", Decimal(50_100), "tokens", True,
    )  # fmt: skip
    assert month.action == (
        "gateways reported 150,000 input and 1,000 output tokens, inference servers counted 200,000 and 1,100: find the "
        "side that lacks (docs/gateways.md, Reconciliation): correct it at its source, or waive it"
    )  # fmt: skip
    assert (one_day.subject, one_day.quantity, one_day.blocks) == ("llama-3-8b 2026-10-15", Decimal(50_100), False)
    assert check(report)[0] is False
    assert report.as_dict()["engines"] == [
        {"model": "llama-3-8b", "days": 1, "days_not_covered": 30, "difference": 50_100,
         "gateway": {"input_tokens": 150_000, "output_tokens": 1000},
         "engine": {"input_tokens": 200_000, "output_tokens": 1100}},
    ]  # fmt: skip
    exception_waive(
        period=period_open(month="2026-10"), kind="engine_difference", subject="llama-3-8b", reason="tests by hand",
        actor="lin", now=AFTER,
    )  # fmt: skip
    assert october().closable
    ingest_tokens(token_record(2, input_tokens=99_000, output_tokens=100))
    assert [(item.subject, item.quantity) for item in october().blocking] == [
        ("llama-3-8b (reported, not counted)", Decimal(49_000)),
    ], "who answers for usage that the bill lacks has not answered for what is too much on it"


@pytest.mark.usefixtures("set_up")
def test_days_that_no_reading_covers_and_models_without_servers_are_not_compared() -> None:
    ingest_tokens(token_record(1), token_record(2, time="2026-10-20T12:00:00+08:00", input_tokens=10**6))
    engines_count(1000, 100)
    report = october()
    assert report.closable
    assert check(report) == (True, "llama-3-8b: 0 of 1,100 tokens differ, 1 of 31 days compared")


@pytest.mark.usefixtures("set_up")
def test_without_counters_the_report_says_so() -> None:
    assert check(october()) == (True, "no counters were reported")


@pytest.mark.usefixtures("set_up")
def test_tokens_of_a_model_that_its_servers_never_counted_differ_wholly() -> None:
    ingest_tokens(token_record(1))
    engines_count(0, 0)
    assert [(item.kind, item.quantity) for item in october().blocking] == [("engine_difference", Decimal(1100))]


# Quarantine


def quarantined(body: object) -> QuarantinedRecord:
    program("usage:write").post("/api/v1/usage/engine-counters", json.dumps(body), content_type="application/json")
    return QuarantinedRecord.objects.get()


def replayed(entry: QuarantinedRecord, corrected: str | None = None) -> list[tuple[int, int]]:
    quarantine_replay(record_id=entry.pk, actor="admin", reason="known", now=AFTER, corrected=corrected)
    return list(EngineReadingRow.objects.order_by("time").values_list("prompt_tokens", "generation_tokens"))


def test_a_reading_in_quarantine_is_corrected_and_counted() -> None:
    entry = quarantined([reading(5, -1, 150)])
    assert refusal_of(entry, AFTER) == entry.error
    with pytest.raises(ReplayError, match="prompt_tokens"):
        replayed(entry)
    assert replayed(entry, entry.record.replace('"prompt_tokens": -1', '"prompt_tokens": 1500')) == [(1500, 150)]


def test_a_reading_of_the_future_is_taken_when_somebody_says_so() -> None:
    assert replayed(quarantined([reading(5, 1, 2, time="2099-10-01T00:00:00Z")])) == [(1, 2)]


def test_a_conflict_of_a_reading_shows_both() -> None:
    ingest(reading(5, 1500, 150))
    entry = quarantined([reading(5, 1501, 150)])
    fields = record_fields(entry, AFTER)
    assert fields is not None
    assert [(field.name, field.stored, field.reported) for field in fields if field.differs] == [
        ("prompt_tokens", "1500", "1501")
    ]
    assert refusal_of(entry, AFTER) == entry.error
    with pytest.raises(ReplayError, match="was reported before with other content"):
        replayed(entry)


@pytest.mark.parametrize("kind", sorted(INGEST))
def test_records_of_every_kind_of_file_can_be_replayed(kind: str) -> None:
    assert record_kind(QuarantinedRecord(door=f"import_usage {kind}")) is not None


# Watermarks and silence


def watermark(**changed: Any) -> Any:
    _, token = api_token_create(name="reader", scopes=["usage:write"], actor="tests", source="litellm-hq")
    body = {"agent": "log reader", "source": "litellm-hq", "watermark": "2026-10-20T00:00:00Z", **changed}
    return Client().post(
        "/api/v1/usage/watermarks", json.dumps(body), content_type="application/json",
        headers={"Authorization": f"Bearer {token}"},
    )  # fmt: skip


@pytest.mark.usefixtures("set_up")
def test_a_reader_that_reported_a_watermark_and_fell_silent_is_a_metering_gap() -> None:
    assert watermark().status_code == 204
    (gap,) = october().blocking
    assert (gap.kind, gap.subject, gap.quantity) == (
        "metering_gap", "litellm-hq/agent log reader", Decimal(11 * 86400 + 16 * 3600),
    )  # fmt: skip
    assert watermark(watermark="2026-11-01T00:00:00Z").status_code == 204
    assert october().closable


@pytest.mark.usefixtures("set_up")
def test_what_was_not_compared_has_no_tick(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    """On the page of the close, in its file and in the command."""
    client.force_login(person("fin", "finance"))
    page = " ".join(client.get("/close/?month=2026-10").content.decode().split())
    (item,) = (part for part in page.split("<li") if "no counters were reported" in part)
    assert item.startswith(' class="open"> <span class="tick" aria-hidden="true">–</span>')
    assert "not compared" in item
    rows = client.get("/close/?month=2026-10&table=checks&as=csv").content.decode()
    assert "gateway tokens = inference servers' counters (0.5 %),true,false,no counters were reported" in rows
    call_command("period_report", "2026-10")
    said = capsys.readouterr().out
    assert "  --   gateway tokens = inference servers' counters (0.5 %): no counters were reported" in said
