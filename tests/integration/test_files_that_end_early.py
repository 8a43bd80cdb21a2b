"""Through when each source reached stands in the report; files that end before the month ask, and block nothing."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from billing.closing.report import Report, build_report
from billing.closing.services.waivers import exception_waive
from billing.invoices.services.periods import period_open
from billing.tenancy.models import AuditEntry
from billing.usage.services import token_files_note
from metering.records import TokenUsage, from_row
from tests.factories import (
    allocation_record,
    apply,
    ingest_allocations,
    ingest_tokens,
    person,
    signed_in,
    token_record,
    watched,
)
from tests.factories.corrections import bill as close
from tests.factories.months import OCTOBER_OVER

pytestmark = pytest.mark.django_db
SUBJECT, HALF, NOTHING = "tokens/litellm-hq", "2026-10-15T12:00:00+08:00", "nothing is missing."


def from_a_file(time: str) -> None:
    """A request of that time, which came in a file."""
    record = token_record(time=time)
    ingest_tokens(record)
    token_files_note([from_row(TokenUsage, record)])


def october() -> Report:
    return build_report(period_open(month="2026-10"), now=OCTOBER_OVER)


def test_a_file_that_ends_in_the_middle_of_the_month_asks_and_blocks_nothing(tmp_path: Path) -> None:
    """From noon of the 15th to the end of October, in Shanghai, are 16.5 days."""
    apply(tmp_path)
    from_a_file(HALF)
    report = october()
    (asked,) = report.exceptions
    assert (asked.kind, asked.subject, int(asked.quantity)) == ("ends_early", SUBJECT, 16 * 86400 + 12 * 3600)
    assert (asked.blocks, report.closable) == (False, True)
    assert str(asked.action) == "its files end 2026-10-15 12:00: import the rest, or confirm that this is all"
    assert report.as_dict()["reached"] == [
        {"kind": "tokens", "name": "litellm-hq", "from_file": True, "through": "2026-10-15T04:00:00+00:00"}
    ]


def test_who_confirms_that_it_is_all_is_stored(tmp_path: Path) -> None:
    apply(tmp_path)
    from_a_file(HALF)
    finance = signed_in(person("li", "finance"))
    page = finance.get("/close/?month=2026-10").content.decode()
    assert "Files that end before the month" in page
    assert "Confirm…" in page
    assert NOTHING not in page
    exception_waive(period=period_open(month="2026-10"), kind="ends_early", subject=SUBJECT, reason="holiday since",
                    actor="li", now=OCTOBER_OVER)  # fmt: skip
    assert AuditEntry.objects.get(action="exception_waive").actor == "li"
    close()
    page = finance.get("/close/?month=2026-10").content.decode()
    assert "nothing is missing" not in page


def test_more_of_the_file_answers_the_question(tmp_path: Path) -> None:
    apply(tmp_path)
    from_a_file("2026-10-31T12:00:00+08:00")
    assert october().exceptions == []
    assert NOTHING in signed_in(person("li", "finance")).get("/close/?month=2026-10").content.decode()


def test_an_open_month_is_not_asked_about(tmp_path: Path) -> None:
    apply(tmp_path)
    from_a_file("2026-10-02T12:00:00+08:00")
    report = build_report(period_open(month="2026-10"), now=datetime(2026, 10, 20, tzinfo=UTC))
    assert [item.kind for item in report.exceptions] == ["period_not_ended"]


def test_an_agent_reaches_as_far_as_it_watched(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(allocation_record())
    assert [(one.name, one.from_file, one.through) for one in october().reached] == [
        ("hq-1", False, datetime(2026, 10, 10, 2, 37, 13, tzinfo=UTC))
    ]
    watched(datetime(2026, 11, 2, tzinfo=UTC))
    assert [one.through for one in october().reached] == [datetime(2026, 10, 31, 16, tzinfo=UTC)]
