"""A source that was used regularly and then not at all blocks the close; a quiet, retired or file-fed one does not."""

import csv
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.waivers import exception_waive
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.usage.services import watermark_advance
from tests.factories import apply, ingest_tokens, token_record

pytestmark = pytest.mark.django_db
NOVEMBER = datetime(2026, 10, 31, 16, tzinfo=UTC)
"""The first of November in Shanghai."""


@pytest.fixture(autouse=True, scope="module")
def set_up(for_all_tests: Path) -> None:
    apply(for_all_tests, ownership=None, platform=None)


def used(*days: int, month: int = 10, hour: int = 12) -> None:
    """One request in the hour, of Shanghai, of these days."""
    ingest_tokens(
        *(token_record(100 * month + day, time=f"2026-{month}-{day:02}T{hour:02}:30:00+08:00") for day in days)
    )


def silent(month: str = "2026-10", now: datetime = NOVEMBER) -> list[tuple[str, Decimal, bool]]:
    report = build_report(period_of(month), now=now)
    return [(item.subject, item.quantity, item.blocks) for item in report.exceptions if item.kind == "silent_source"]


def test_a_source_that_is_silent_for_eleven_days_blocks_the_close_until_somebody_answers() -> None:
    """Used until 13:00 of the 20th: 11 days and 11 hours before the end of the month."""
    used(*range(1, 21))
    seconds = 11 * 86400 + 11 * 3600
    assert silent() == [("litellm-hq", Decimal(seconds), True)]
    with pytest.raises(CloseRefusedError):
        period_close(month="2026-10", actor="fin", now=NOVEMBER)
    exception_waive(period=period_open(month="2026-10"), kind="silent_source", subject="litellm-hq",
                    reason="retired", actor="lin", now=NOVEMBER)  # fmt: skip
    period_close(month="2026-10", actor="fin", now=NOVEMBER)


def test_a_source_that_fell_silent_in_the_month_before_is_still_missed() -> None:
    used(*range(10, 31))
    december = datetime(2026, 11, 30, 16, tzinfo=UTC)
    assert silent("2026-11", december) == [("litellm-hq", Decimal(31 * 86400 + 11 * 3600), True)]


@pytest.mark.parametrize(("last", "missed"), [(29, True), (30, True), (31, False)])
def test_a_day_without_usage_is_silence_of_a_source_that_is_used_every_day(last: int, missed: bool) -> None:
    """Until 13:00 of the 30th are 35 hours, longer than its pauses of 23 hours; of the 31st 11 hours."""
    used(*range(1, last + 1))
    assert bool(silent()) is missed


def test_a_source_that_rests_at_weekends_is_not_missed_on_one() -> None:
    """The 31st is a Saturday: silent since Friday 13:00, which is shorter than from a Friday to a Monday."""
    used(*(day for day in range(1, 31) if datetime(2026, 10, day, tzinfo=UTC).weekday() < 5))
    assert silent() == []


def test_a_source_that_was_used_on_six_days_is_not_missed() -> None:
    used(*range(1, 7))
    assert silent() == []


def test_a_source_whose_reader_went_on_watching_is_not_missed() -> None:
    used(*range(1, 21))
    watermark_advance(agent="log reader", cluster="litellm-hq", watermark=NOVEMBER)
    assert silent() == []


@pytest.mark.parametrize(("until", "missed"), [("2026-10-31", False), ("2026-11-02", True)])
def test_a_source_without_any_consumer_at_the_end_of_the_month_is_retired(tmp_path: Path, until: str, missed: bool) -> None:
    consumer = {"source": "litellm-hq", "consumer": "nlp-key-1", "team": "nlp", "valid_from": "2026-01-01"}
    apply(tmp_path, ownership=None, platform=None, consumers=[{**consumer, "valid_until": until}])
    used(*range(1, 21))
    assert bool(silent()) is missed


def test_a_source_of_which_the_last_usage_came_in_a_file_is_not_missed(tmp_path: Path) -> None:
    used(*range(1, 19))
    columns = ("source", "id", "time", "consumer", "model", "input_tokens", "cache_read_input_tokens",
               "cache_creation_input_tokens", "output_tokens", "reasoning_output_tokens")  # fmt: skip
    record: dict[str, Any] = token_record(99, time="2026-10-20T12:30:00+08:00")
    with (tmp_path / "tokens.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerow(record)
    assert len(silent()) == 1
    call_command("import_usage", "tokens", str(tmp_path / "tokens.csv"))
    assert silent() == []
    used(21, hour=9)
    assert silent() == [("litellm-hq", Decimal(10 * 86400 + 14 * 3600), True)], "its gateway reported after the file"
