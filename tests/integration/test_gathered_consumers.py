"""Teams with many consumers: token lines per model and class, shared out to the consumers so that they add up."""

import csv
import hashlib
import io
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command

from billing.budgets.spending import month_lines
from billing.closing.report import build_report
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.explorer.models import MonthCube
from billing.explorer.selectors import Explorer
from billing.invoices.annex import annex_of
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of, period_of
from billing.rating.models import TokenLayout
from billing.rating.recount import tokens_recount
from billing.tenancy.models import BillingSetup
from billing.usage.models import Close
from billing.usage.token_file import file_token_sums
from metering.intervals import billing_month
from tests.factories import SET_UP, apply, ingest_tokens, money, person, signed_in, token_record
from tests.factories.api import program
from tests.factories.corrections import IN_NOVEMBER, NOVEMBER_OVER, bill, people, proofs_hold
from tests.factories.explorer import asked, bars
from tests.factories.months import OCTOBER_OVER
from tests.factories.pages import file_rows, statements_of

pytestmark = pytest.mark.django_db

OCTOBER, IN_DECEMBER = datetime(2026, 9, 30, 16, tzinfo=UTC), datetime(2026, 12, 9, tzinfo=UTC)
OWNERS = [
    {"source": "litellm-hq", "consumer": f"{team}-*", "team": team, "valid_from": "2026-01-01"} for team in ("nlp", "cv")
]


def limit(above: int) -> dict[str, Any]:
    """The set-up with another limit, and owners of all consumers that begin with a team's code."""
    return {"billing": {**SET_UP["billing"], "gather_consumers_above": above}, "consumers": OWNERS}


def used(number: int, consumer: str, output: int, **changed: Any) -> dict[str, Any]:
    """A request with output alone, at 8.00 the million."""
    return token_record(
        number, consumer=consumer, input_tokens=0, cache_read_input_tokens=0, output_tokens=output,
        reasoning_output_tokens=0, **changed,
    )  # fmt: skip


def lines(month: str = "2026-10", team: str = "nlp") -> list[tuple[Any, ...]]:
    invoice = Invoice.objects.get(period__month=month, team__code=team)
    names = ("consumer", "token_class", "quantity", "amount", "charge_period")
    return [tuple(line[name] for name in names) for line in document_of(invoice)["lines"]]


def annex(month: str = "2026-10", team: str = "nlp") -> dict[str, tuple[int, str]]:
    """Tokens and amount by consumer of the only line of an invoice."""
    parts = annex_of(Invoice.objects.get(period__month=month, team__code=team))
    return {part.consumer: (part.tokens, str(part.amount)) for part in parts}


def test_above_the_limit_a_teams_tokens_are_summed_before_they_are_rounded(tmp_path: Path) -> None:
    """Three consumers of 500, 400 and 900 tokens at 8.00: 0.00, 0.00 and 0.01 by themselves, 1,800 together 0.0144.

    Above a limit of 2 that is one line of 0.01, of which the one with the largest remainder has the cent.
    """
    apply(tmp_path, **limit(2))
    ingest_tokens(used(1, "nlp-a", 500), used(2, "nlp-b", 400), used(3, "nlp-c", 900), used(4, "cv-a", 500))
    (before,) = statements_of("2026-10").statements
    assert [(line.key.consumer, line.amount) for line in before.lines] == [("", money("0.01"))]
    bill()
    assert lines() == [(None, "output", "0.001800", "0.01", "2026-10")]
    assert lines(team="cv") == [("cv-a", "output", "0.000500", "0.00", "2026-10")]
    assert annex() == {"nlp-a": (500, "0.00"), "nlp-b": (400, "0.00"), "nlp-c": (900, "0.01")}
    assert annex(team="cv") == {}
    assert set(TokenLayout.objects.values_list("team", "gathered")) == {("cv", False), ("nlp", True)}
    assert proofs_hold("2026-10")


def test_at_the_limit_each_consumer_keeps_its_lines(tmp_path: Path) -> None:
    apply(tmp_path, **limit(3))
    ingest_tokens(used(1, "nlp-a", 500), used(2, "nlp-b", 400), used(3, "nlp-c", 900))
    bill()
    assert [line[0] for line in lines()] == ["nlp-a", "nlp-b", "nlp-c"]
    assert TokenLayout.objects.get().gathered is False


def test_one_twenty_and_two_thousand_consumers_are_billed_what_their_tokens_are_worth(tmp_path: Path) -> None:
    """cv has 20 consumers of 125,000 tokens, 1.00 each; nlp 2,000 of 700: 0.0056 each, and 1,400,000 x 8 / 10^6 = 11.20.

    By themselves the 2,000 would be 2,000 x 0.01 = 20.00. Shared out, 11.20 are 1,120 of them a cent and 880 nothing. Late
    usage of 125,000 tokens is one line of 1.00 in November, whatever the limit is by then, and a price of 7.00 takes 11.20
    and 1.00 back and bills 9.80 and 0.88.
    """
    people()
    apply(tmp_path, **limit(40))
    ingest_tokens(
        *(used(number, f"nlp-{number:04d}", 700) for number in range(2000)),
        *(used(5000 + number, f"cv-{number}", 125_000) for number in range(20)),
    )
    bill()
    assert lines() == [(None, "output", "1.400000", "11.20", "2026-10")]
    assert [line[3] for line in lines(team="cv")] == ["1.00"] * 20
    amounts = [amount for _, amount in annex().values()]
    assert (amounts.count("0.01"), amounts.count("0.00")) == (1120, 880)
    spent = {item.consumer: item.amount for item in month_lines("2026-10", "Asia/Shanghai").lines if item.team == "nlp"}
    assert (len(spent), sum(spent.values())) == (2000, money("11.20"))

    apply(tmp_path, **limit(100_000))
    late = "2026-10-20T12:00:00+08:00"
    ingest_tokens(used(9001, "nlp-0001", 100_000, time=late), used(9002, "nlp-0002", 25_000, time=late), now=IN_NOVEMBER)
    assert proofs_hold("2026-10")
    bill("2026-11", NOVEMBER_OVER)
    assert lines("2026-11") == [(None, "output", "0.125000", "1.00", "2026-10")]
    assert annex("2026-11") == {"nlp-0001": (100_000, "0.80"), "nlp-0002": (25_000, "0.20")}

    cheaper = {"tokens": [{"model": "llama-3-8b", "token_class": "output", "price": "7"}]}
    change = retroactive_propose(
        kind="price", name="fix", fact=cheaper, valid_from=OCTOBER, valid_until=None, reason="agreed afterwards",
        evidence="INC-17", actor="sam", now=IN_DECEMBER,
    )  # fmt: skip
    retroactive_approve(change_id=change.pk, actor="fin", now=IN_DECEMBER)
    notes = Note.objects.filter(team__code="nlp").order_by("kind", "sequence")
    assert sorted(note.total for note in notes) == [money(text) for text in ("-11.20", "-1.00", "0.88", "9.80")]
    assert {line["consumer"] for note in notes for line in document_of(note)["lines"]} == {None}
    assert proofs_hold("2026-10", "2026-11")


def test_the_annex_leaves_as_csv_xlsx_and_json_and_with_the_month(tmp_path: Path) -> None:
    """0.02 over 900 and 1,500 tokens: 0.0075 and 0.0125, of which the first has the larger remainder, so 0.01 each."""
    apply(tmp_path, **limit(1))
    ingest_tokens(used(1, "nlp-a", 900), used(2, "nlp-=b", 1500))
    bill()
    invoice = Invoice.objects.get()
    reader = program("invoices:read")
    content = reader.get(f"/api/v1/invoices/{invoice.number}.consumers.csv").content.decode("utf-8-sig")
    rows = list(csv.DictReader(io.StringIO(content)))
    assert [(row["position"], row["consumer"], row["tokens"], row["amount"]) for row in rows] == [
        ("1", "nlp-=b", "1500", "0.01"), ("1", "nlp-a", "900", "0.01"),
    ]  # fmt: skip
    book = openpyxl.load_workbook(io.BytesIO(reader.get(f"/api/v1/invoices/{invoice.number}.consumers.xlsx").content))
    assert [row[-1] for row in book.active.iter_rows(min_row=2, values_only=True)] == [0.01, 0.01]
    document = reader.get(f"/api/v1/invoices/{invoice.number}.consumers.json").json()
    assert [(part["consumer"], part["quantity"], part["amount"]) for part in document["consumers"]] == [
        ("nlp-=b", "0.001500", "0.01"), ("nlp-a", "0.000900", "0.01"),
    ]  # fmt: skip
    call_command("export_invoices", "2026-10", "--out", str(tmp_path / "files"))
    assert {path.name.removeprefix(f"{invoice.number}.") for path in (tmp_path / "files").iterdir()} == {
        "pdf", "csv", "xlsx", "json", "consumers.csv", "consumers.json",
    }  # fmt: skip
    text = (tmp_path / "files" / f"{invoice.number}.json").read_bytes()
    assert hashlib.sha256(text).hexdigest() == invoice.sha256
    shown = reader.get(f"/api/v1/invoices/{invoice.number}.json").json()
    assert hashlib.sha256(shown["document"].encode()).hexdigest() == shown["sha256"] == invoice.sha256


def test_pages_focus_and_an_engine_that_recounts_read_a_gathered_line(tmp_path: Path) -> None:
    apply(tmp_path, **limit(1))
    records = [used(1, "nlp-a", 900), used(2, "nlp-b", 1500)]
    ingest_tokens(*records)
    bill()
    (line,) = statements_of("2026-10").statements[0].lines
    finance = signed_in(person("fin", "finance"))
    page = finance.get(f"/teams/nlp/lines/{line.digest}/", {"month": "2026-10"}).content.decode()
    assert "nlp-a" in page
    assert finance.get(f"/teams/nlp/lines/{line.digest}/?month=2026-10&day=2026-10-15").status_code == 200
    invoice = Invoice.objects.get()
    assert "All consumers" in finance.get(f"/invoices/{invoice.pk}/").content.decode()
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    (row,) = file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv")
    assert (row["BilledCost"], row["SubAccountId"], row["SubAccountType"], row["ConsumedQuantity"]) == (
        "0.02", "", "", "2400",
    )  # fmt: skip
    assert "for all consumers" in row["ChargeDescription"]
    path, found = tmp_path / "records.parquet", {name: [record[name] for record in records] for name in records[0]}
    found["time"] = pa.array([datetime.fromisoformat(text) for text in found["time"]], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table(found), path)
    window = billing_month("2026-10", "Asia/Shanghai")
    assert tokens_recount(engine=partial(file_token_sums, path), window=window, zone="Asia/Shanghai", close_seq=1).holds


def consumed(text: str, zone: str = "Asia/Shanghai") -> dict[str, str]:
    """The explorer's sums by consumer."""
    MonthCube.objects.all().delete()
    found = Explorer(frozenset({"nlp", "cv"}), IN_DECEMBER, zone).explore(asked(f"{text}&by=consumer"))
    return {group.names[0]: str(group.total) for group in found.groups if group.total}


def test_the_explorer_names_the_consumers_of_a_gathered_line_as_the_annex_does(tmp_path: Path) -> None:
    """nlp-a, b and c have 250,000, 125,000 and 625 tokens at 8.00: 2.00, 1.00 and 0.005 together 3.005, so 3.01.

    Shared out by tokens 2.0033, 1.0017 and 0.0050: the cent that is left goes to nlp-c. Late usage is of its consumer too.
    """
    apply(tmp_path, **limit(2))
    midnight = "2026-10-16T00:00:00+08:00"
    ingest_tokens(
        used(1, "nlp-a", 250_000), used(2, "nlp-b", 100_000), used(3, "nlp-b", 25_000, time=midnight), used(4, "nlp-c", 625),
        used(5, "cv-a", 125_000),
    )  # fmt: skip
    expected = {"nlp-a": "2.00", "nlp-b": "1.00", "cv-a": "1.00", "nlp-c": "0.01"}
    assert consumed("month=2026-10") == expected
    bill()
    assert consumed("month=2026-10") == expected
    assert {name: amount for name, (_, amount) in annex().items()} | {"cv-a": "1.00"} == expected
    assert consumed("month=2026-10&metric=tokens") == {
        "nlp-a": "250000", "nlp-b": "125000", "cv-a": "125000", "nlp-c": "625",
    }  # fmt: skip
    assert consumed("month=2026-10&metric=requests") == {"nlp-a": "1", "nlp-b": "2", "cv-a": "1", "nlp-c": "1"}
    assert consumed("from=2026-10-16&to=2026-10-16") == {"nlp-b": "0.20"}
    assert consumed("from=2026-10-16&to=2026-10-16&step=hour&metric=tokens&consumer=nlp-b") == {"nlp-b": "25000"}
    ingest_tokens(used(6, "nlp-b", 125_000, time=midnight), used(7, "nlp-d", 250_000, time=midnight), now=IN_NOVEMBER)
    bill("2026-11", NOVEMBER_OVER)
    assert consumed("month=2026-11") == {"nlp-b": "1.00", "nlp-d": "2.00"}


def test_the_explorer_names_the_consumers_of_notes_of_a_gathered_line(tmp_path: Path) -> None:
    """At 7.00 the 375,625 tokens of October are 2.63 of which 1.75, 0.88 and 0.00 are theirs; cv-a's 1.00 become 0.88."""
    people()
    apply(tmp_path, **limit(2))
    ingest_tokens(
        used(1, "nlp-a", 250_000), used(2, "nlp-b", 125_000), used(3, "nlp-c", 625), used(4, "cv-a", 125_000)
    )
    bill()
    bill("2026-11", NOVEMBER_OVER)
    cheaper = {"tokens": [{"model": "llama-3-8b", "token_class": "output", "price": "7"}]}
    change = retroactive_propose(
        kind="price", name="fix", fact=cheaper, valid_from=OCTOBER, valid_until=None, reason="agreed afterwards",
        evidence="INC-17", actor="sam", now=IN_DECEMBER,
    )  # fmt: skip
    retroactive_approve(change_id=change.pk, actor="fin", now=IN_DECEMBER)
    assert consumed("month=2026-12") == {"nlp-a": "-0.25", "nlp-b": "-0.12", "cv-a": "-0.12", "nlp-c": "-0.01"}
    assert sum(note.total for note in Note.objects.all()) == money("-0.50")


def test_the_hours_of_a_consumer_of_a_gathered_line_are_those_of_its_own_requests(tmp_path: Path) -> None:
    apply(tmp_path, **limit(1))
    ingest_tokens(
        used(1, "nlp-a", 250_000, time="2026-10-16T09:10:00+08:00"),
        used(2, "nlp-b", 125_000, time="2026-10-16T11:10:00+08:00"),
    )
    bill()
    found = Explorer(frozenset({"nlp"}), IN_DECEMBER, "Asia/Shanghai").explore(
        asked("from=2026-10-16&to=2026-10-16&step=hour&by=consumer")
    )
    shown = {group.names[0]: bars(group, found) for group in found.groups}
    assert {name: [(at[:13], str(amount)) for at, amount in own.items()] for name, own in shown.items()} == {
        "nlp-a": [("2026-10-16T09", "2.00")], "nlp-b": [("2026-10-16T11", "1.00")],
    }  # fmt: skip


def test_the_report_says_what_rounding_did(tmp_path: Path) -> None:
    """Five consumers of 625 tokens at 8.00: 0.005 each, 0.01 as lines: 0.05 instead of 0.025."""
    apply(tmp_path, **limit(40))
    ingest_tokens(*(used(number, f"nlp-{number}", 625) for number in range(5)))
    bill()
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert report.as_dict()["rounding"] == [
        {"team": "nlp", "month": "2026-10", "exact": "0.025000", "lines": "0.05", "rounding": "0.025000"}
    ]
    page = signed_in(person("fin", "finance")).get("/close/?month=2026-10").content.decode()
    assert "exact sum 0.025000, sum of lines 0.05 (rounding 0.025000)" in page


def test_a_month_that_older_rules_closed_is_proved_by_them(tmp_path: Path) -> None:
    apply(tmp_path, **limit(40))
    ingest_tokens(used(1, "nlp-a", 900), used(2, "nlp-b", 1500))
    bill()
    BillingSetup.objects.update(gather_consumers_above=1)
    assert proofs_hold("2026-10")
    assert [line[0] for line in lines()] == ["nlp-a", "nlp-b"]
    assert Close.objects.get().rating_rules == 3
