"""The ledger journal: balanced per invoice, the same bytes twice, sides that turn with the sign."""

import codecs
import csv
import io
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from billing.exports.journal import COLUMNS, Chart, Journal, JournalError, journal_csv, journal_of

F14 = Chart(provider_cost_center="CC-900", company_code="1000")


def document(total: str = "9000.00", **changed: Any) -> dict[str, Any]:
    """An issued document of team nlp for October 2026 in Shanghai."""
    return {
        "schema": "suanpan/invoice/1", "number": "AI-INFRA-2026-000001", "issuer": {"name": "AI-INFRA"},
        "recipient": {"team": "nlp", "name": "NLP Research", "cost_center": "CC-210"},
        "period": {"month": "2026-10", "zone": "Asia/Shanghai", "start": "2026-10-01T00:00:00+08:00",
                   "end": "2026-11-01T00:00:00+08:00"},
        "currency": "CNY", "subtotals": [{"kind": "gpu", "amount": total}], "total": total, **changed,
    }  # fmt: skip


def sides(journal: Journal) -> list[tuple[str, Decimal | None, Decimal | None]]:
    return [(entry.cost_center, entry.debit, entry.credit) for entry in journal.entries]


def read(*journals: Journal) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(journal_csv(journals).decode(), newline="")))


def test_f14_an_internal_invoice_debits_the_consumer_and_credits_the_provider() -> None:
    journal = journal_of(document(), F14)
    assert sides(journal) == [("CC-210", Decimal("9000.00"), None), ("CC-900", None, Decimal("9000.00"))]
    assert journal.debit - journal.credit == 0
    assert [entry.account for entry in journal.entries] == ["internal AI compute", "internal AI compute recovered"]


def test_every_field_of_a_row_is_stated() -> None:
    first, second = read(journal_of(document(), F14))
    assert tuple(first) == COLUMNS
    assert {name: value for name, value in first.items() if name != "batch_hash"} == {
        "journal_id": "GL-AI-INFRA-2026-000001", "line_id": "GL-AI-INFRA-2026-000001-001", "company_code": "1000",
        "posting_date": "2026-10-31", "period": "2026-10", "account": "internal AI compute", "cost_center": "CC-210",
        "internal_order": "", "debit": "9000.00", "credit": "", "currency": "CNY",
        "text": "AI-INFRA-2026-000001 nlp 2026-10: GPU hours", "invoice_number": "AI-INFRA-2026-000001",
    }  # fmt: skip
    assert (second["debit"], second["credit"]) == ("", "9000.00")
    assert first["batch_hash"] == second["batch_hash"]
    assert len(first["batch_hash"]) == 64


def test_kinds_are_posted_apart_and_a_reward_turns_its_sides() -> None:
    kinds = [("gpu", "100.00"), ("tokens", "0.00"), ("efficiency", "-10.00")]
    parts = [{"kind": kind, "amount": amount} for kind, amount in kinds]
    journal = journal_of(document("90.00", subtotals=parts), F14)
    assert sides(journal) == [
        ("CC-210", Decimal("100.00"), None), ("CC-900", None, Decimal("100.00")),
        ("CC-210", None, Decimal("10.00")), ("CC-900", Decimal("10.00"), None),
    ]  # fmt: skip
    assert journal.debit == journal.credit == Decimal("110.00")
    assert journal.net_of("internal AI compute") == Decimal("90.00")


def test_another_amount_is_another_batch() -> None:
    hashes = [read(journal_of(document(total), F14))[0]["batch_hash"] for total in ("1.00", "2.00")]
    assert hashes[0] != hashes[1]


def test_the_chart_names_accounts_orders_and_dates() -> None:
    chart = Chart(
        consumer_account="6001", provider_account="6002", posting_date=date(2026, 11, 4),
        cost_centers={"nlp": "CC-211"}, internal_orders={"nlp": "IO-7"},
    )  # fmt: skip
    rows = read(journal_of(document(), chart))
    assert [(row["account"], row["cost_center"], row["internal_order"]) for row in rows] == [
        ("6001", "CC-211", "IO-7"), ("6002", "AI-INFRA", ""),
    ]  # fmt: skip
    assert {row["posting_date"] for row in rows} == {"2026-11-04"}
    assert {row["company_code"] for row in rows} == {"AI-INFRA"}


@pytest.mark.parametrize("code", ["-100", "+7", "=1+1", "@4711"])
def test_a_ledger_gets_text_as_it_is_and_a_spreadsheet_an_apostrophe(code: str) -> None:
    recipient = {"team": "nlp", "name": "NLP", "cost_center": code}
    journal = journal_of(document(recipient=recipient), F14)
    (first, _) = read(journal)
    assert first["cost_center"] == code
    assert not journal_csv([journal]).startswith(codecs.BOM_UTF8)
    sheet = journal_csv([journal], spreadsheet=True)
    assert sheet.startswith(codecs.BOM_UTF8)
    (shown, _) = csv.DictReader(io.StringIO(sheet.decode("utf-8-sig"), newline=""))
    assert (shown["cost_center"], shown["batch_hash"]) == (f"'{code}", first["batch_hash"])


@pytest.mark.parametrize(
    ("zone", "start", "end", "day"),
    [
        # clocks go from 0:00 to 1:00 on 1 October 2023: October begins at 1:00
        ("America/Asuncion", "2023-09-01T00:00:00-04:00", "2023-10-01T01:00:00-03:00", date(2023, 9, 30)),
        ("Asia/Shanghai", "2023-09-01T00:00:00+08:00", "2023-10-01T00:00:00+08:00", date(2023, 9, 30)),
        # stored in UTC by whoever made the document
        ("Pacific/Auckland", "2024-01-31T11:00:00+00:00", "2024-02-29T11:00:00+00:00", date(2024, 2, 29)),
    ],
)
def test_it_is_posted_on_the_last_day_of_the_month_in_the_zone_of_the_books(
    zone: str, start: str, end: str, day: date
) -> None:
    period = {"month": f"{day:%Y-%m}", "zone": zone, "start": start, "end": end}
    assert journal_of(document(period=period), F14).posting_date == day


def test_sub_totals_that_are_not_the_total_are_refused() -> None:
    with pytest.raises(JournalError, match="its sub-totals are not its total 9000"):
        journal_of(document(subtotals=[{"kind": "gpu", "amount": "8999.99"}]), F14)
