"""Take-or-pay commitments, to the cent: used, beyond, unused, a start in mid-month, late usage, other owners."""

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, transaction
from django.test import Client
from pypdf import PdfReader

from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.corrections.effect import effect_of
from billing.corrections.services.retroactive import retroactive_acknowledge, retroactive_approve, retroactive_propose
from billing.exports.focus.contract_commitments import CONTRACT_COMMITMENT
from billing.invoices.documents import PdfRenderer
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of, period_of
from billing.portal import drilldown
from billing.portal.selectors import team_rows
from billing.rates.models import Commitment
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.api import program
from tests.factories.corrections import IN_NOVEMBER, NOVEMBER_OVER, OCTOBER_OVER, people, proofs_hold
from tests.factories.corrections import bill as close
from tests.factories.pages import file_rows, rows_of, statements_of

pytestmark = pytest.mark.django_db

TERMS = {"name": "nlp-2026", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "1000",
         "price_per_gpu_hour": "8.0000", "valid_from": "2026-10-01"}  # fmt: skip
USED, UNUSED, ON_DEMAND = ("commitment", "used"), ("commitment", "unused"), ("gpu", "")


def hold(number: int, start: str, end: str, **changed: Any) -> dict[str, Any]:
    """Ten devices in nlp-train unless something else is said; times are of October in UTC."""
    at = lambda text: f"2026-{text}:00Z" if len(text) > 8 else f"2026-10-{text}:00Z"  # noqa: E731
    seen = {"started_at": at(start), "ended_at": at(end), "observed_until": at(end)}
    return allocation_record(number, **{"quantity": 10, **seen, **changed})


def lines(month: str = "2026-10", team: str = "nlp") -> list[tuple[tuple[str, str], str, str, str]]:
    """(kind and reason), quantity, price and amount of each line."""
    document = document_of(Invoice.objects.get(period__month=month, team__code=team))
    return [
        ((line["kind"], line["reason"] or ""), line["quantity"], line["unit_price"], line["amount"])
        for line in document["lines"]
    ]


SLA = {"name": "sla-v1", "valid_from": "2026-10-01", "preempted": "platform"}
AFTER = {**TERMS, "name": "nlp-2026-b", "gpu_hours_per_month": "500", "price_per_gpu_hour": "7", "valid_from": "2026-10-16"}
YEAR = {**TERMS, "valid_until": "2027-10-01"}
TEN_DAYS = {**TERMS, "name": "nlp-more", "gpu_hours_per_month": "310", "price_per_gpu_hour": "9",
            "valid_from": "2026-10-06", "valid_until": "2026-10-16"}  # fmt: skip
CASES: dict[str, Any] = {
    "F13: of 1,000 hours at 8 850 are used": (
        {}, [hold(1, "05T00:00", "08T13:00")],
        [(UNUSED, "150.000000", "8.0000", "1200.00"), (USED, "850.000000", "8.0000", "6800.00")],
    ),
    "1,200 hours: 1,000 at 8 and 200 at the list's 10": (
        {}, [hold(1, "05T00:00", "10T00:00")],
        [(ON_DEMAND, "200.000000", "10.0000", "2000.00"), (USED, "1000.000000", "8.0000", "8000.00")],
    ),
    "a month without any usage": ({}, [], [(UNUSED, "1000.000000", "8.0000", "8000.00")]),
    "a start in mid-month: 16 of 31 days are 516.129032 h, 4,129.03; what was used before is on demand": (
        {"commitments": [{**TERMS, "valid_from": "2026-10-16"}]}, [hold(1, "15T06:00", "16T02:00")],
        [(ON_DEMAND, "100.000000", "10.0000", "1000.00"), (UNUSED, "416.129032", "8.0000", "3329.03"),
         (USED, "100.000000", "8.0000", "800.00")],
    ),
    "another version follows: 15 of 31 days at 1,000 x 8, 16 of 31 at 500 x 7": (
        {"commitments": [TERMS, AFTER]}, [],
        [(UNUSED, "483.870968", "8.0000", "3870.97"), (UNUSED, "258.064516", "7.0000", "1806.45")],
    ),
    "100 h for ten days beside 1,000 h a month: they end first and go first, and the 1,000 go on after them": (
        {"commitments": [YEAR, TEN_DAYS]}, [hold(1, "10T00:00", "11T06:00"), hold(2, "20T00:00", "20T20:00")],
        [(UNUSED, "600.000000", "8.0000", "4800.00"), (USED, "400.000000", "8.0000", "3200.00"),
         (USED, "100.000000", "9.0000", "900.00")],
    ),
    "ten days beside terms without an end do not end these": (
        {"commitments": [TERMS, TEN_DAYS]}, [hold(1, "20T00:00", "20T20:00")],
        [(UNUSED, "800.000000", "8.0000", "6400.00"), (UNUSED, "100.000000", "9.0000", "900.00"),
         (USED, "200.000000", "8.0000", "1600.00")],
    ),
    "100 h preempted use up nothing: at the list price and taken back; the other 100 h are covered": (
        {"interruption_policies": [SLA]},
        [hold(1, "05T00:00", "05T10:00", end_reason="preempted"), hold(2, "06T00:00", "06T10:00")],
        [(ON_DEMAND, "100.000000", "10.0000", "1000.00"), (UNUSED, "900.000000", "8.0000", "7200.00"),
         (USED, "100.000000", "8.0000", "800.00"), (("interruption", "preempted"), "100.000000", "-10.0000", "-1000.00")],
    ),
}  # fmt: skip
"""What is set up beside the terms, allocations, and the lines of the month; worked out by hand."""


@pytest.mark.parametrize(("declared", "allocations", "billed"), CASES.values(), ids=CASES)
def test_what_is_used_unused_and_beyond_is_billed_on_lines_of_its_own(
    tmp_path: Path, declared: dict[str, Any], allocations: list[dict[str, Any]], billed: Any
) -> None:
    declared = {"commitments": [TERMS], **declared}
    apply(tmp_path, **declared)
    if allocations:
        ingest_allocations(*allocations)
    close()
    assert lines() == billed
    assert Invoice.objects.get().total == sum(Decimal(amount) for *_, amount in billed)
    assert proofs_hold("2026-10")
    assert apply(tmp_path, **declared).changes == []


def test_hours_are_used_up_in_the_order_of_time_across_namespaces_and_prices(tmp_path: Path) -> None:
    """From 6 October the list says 12. 600 h before (400 + 200), 800 h after: all 600, then 400 of the 800 are covered.

    4,800.00 (3,200 + 1,600) and 3,200.00 by commitment, 400 h at 12 = 4,800.00 on demand.
    """
    dearer = {**SET_UP["price_versions"][0], "name": "2026-10b", "valid_from": "2026-10-06T00:00:00Z",
              "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "12.0000"}]}  # fmt: skip
    apply(tmp_path, commitments=[TERMS], price_versions=[*SET_UP["price_versions"], dearer])
    ingest_allocations(
        hold(1, "01T00:00", "02T16:00"), hold(2, "03T00:00", "03T20:00", namespace="nlp-eval"),
        hold(3, "07T00:00", "10T08:00"),
    )  # fmt: skip
    close()
    document = document_of(Invoice.objects.get())
    reported = [(x["kind"], x["namespace"], x["price_version"], x["quantity"], x["amount"]) for x in document["lines"]]
    assert reported == [
        ("gpu", "nlp-train", "2026-10b", "400.000000", "4800.00"),
        ("commitment", "nlp-eval", "2026-10", "200.000000", "1600.00"),
        ("commitment", "nlp-train", "2026-10", "400.000000", "3200.00"),
        ("commitment", "nlp-train", "2026-10b", "400.000000", "3200.00"),
    ]
    assert document["subtotals"] == [{"kind": "gpu", "amount": "4800.00"}, {"kind": "commitment", "amount": "8000.00"}]
    assert proofs_hold("2026-10")


def test_late_usage_takes_back_what_was_billed_as_unused_then_is_on_demand(tmp_path: Path) -> None:
    """850 used and 150 unused are billed. 200 h come late: 150 of them were paid for, 50 are on demand at 10."""
    apply(tmp_path, commitments=[{**TERMS, "valid_until": "2026-11-01"}])
    ingest_allocations(hold(1, "05T00:00", "08T13:00"))
    close()
    ingest_allocations(hold(2, "20T00:00", "20T20:00"))
    close("2026-11", NOVEMBER_OVER)
    document = document_of(Invoice.objects.get(period__month="2026-11"))
    fields = ("kind", "reason", "quantity", "unit_price", "amount", "charge_class")
    reported = [tuple(line[name] for name in fields) for line in document["lines"]]
    assert reported == [
        ("gpu", None, "50.000000", "10.0000", "500.00", "Correction"),
        ("commitment", "unused", "150.000000", "-8.0000", "-1200.00", "Correction"),
        ("commitment", "used", "150.000000", "8.0000", "1200.00", "Correction"),
    ]
    assert document["total"] == "500.00"
    ingest_allocations(hold(3, "21T00:00", "21T01:00"))
    period_close(month="2026-12", actor="ops", now=datetime(2027, 1, 2, tzinfo=UTC))
    assert [line.amount for line in statements_of("2026-12").statements[0].lines] == [Decimal("100.00")]
    assert proofs_hold("2026-10", "2026-11", "2026-12")


def test_late_usage_takes_back_what_two_commitments_together_left_unused(tmp_path: Path) -> None:
    """1,050 h use up the 100 that began first and 950 of 1,000. Of 80 late hours 50 were paid for, 30 are on demand."""
    more = {**TERMS, "name": "nlp-more", "gpu_hours_per_month": "100", "price_per_gpu_hour": "9"}
    until = {"valid_until": "2026-11-01"}
    apply(tmp_path, commitments=[{**TERMS, **until}, {**more, **until, "valid_from": "2026-09-01"}])
    ingest_allocations(hold(1, "05T00:00", "09T09:00"))
    close()
    assert lines() == [
        (UNUSED, "50.000000", "8.0000", "400.00"), (USED, "950.000000", "8.0000", "7600.00"),
        (USED, "100.000000", "9.0000", "900.00"),
    ]  # fmt: skip
    ingest_allocations(hold(2, "20T00:00", "20T08:00"))
    close("2026-11", NOVEMBER_OVER)
    assert lines("2026-11") == [
        (ON_DEMAND, "30.000000", "10.0000", "300.00"), (UNUSED, "50.000000", "-8.0000", "-400.00"),
        (USED, "50.000000", "8.0000", "400.00"),
    ]  # fmt: skip
    hours: dict[tuple[str, str], Decimal] = {}
    for month in ("2026-10", "2026-11"):
        call_command("export_focus", month, "--out", str(tmp_path))
        for row in file_rows(tmp_path / f"focus-cost-and-usage-{month}.csv"):
            name = row["CommitmentDiscountId"], row["CommitmentDiscountStatus"]
            if row["ChargeCategory"] == "Usage" and name[0]:
                hours[name] = hours.get(name, Decimal(0)) + Decimal(row["CommitmentDiscountQuantity"])
    assert hours == {("nlp-2026", "Used"): 1000, ("nlp-2026", "Unused"): 0, ("nlp-more", "Used"): 100}
    assert proofs_hold("2026-10", "2026-11")


def test_slices_with_a_price_of_their_own_and_other_teams_are_not_covered(tmp_path: Path) -> None:
    apply(tmp_path, commitments=[{**TERMS, "gpu_hours_per_month": "10"}])
    ingest_allocations(
        hold(1, "05T00:00", "05T01:00", quantity=1, resource="nvidia.com/mig-1g.10gb"),
        hold(2, "05T00:00", "05T01:00", namespace="cv"),
    )
    close()
    assert lines() == [
        (ON_DEMAND, "1.000000", "1.7143", "1.71"), (UNUSED, "10.000000", "8.0000", "80.00"),
    ]  # fmt: skip
    assert lines(team="cv") == [(ON_DEMAND, "10.000000", "10.0000", "100.00")]


def test_the_preview_is_the_invoice_and_its_lines_open_to_what_used_them(tmp_path: Path) -> None:
    apply(tmp_path, commitments=[TERMS])
    ingest_allocations(hold(1, "05T00:00", "10T00:00"), hold(2, "10T00:00", "10T10:00"))  # 1,300 h
    before = statements_of()
    (row,) = team_rows(before)
    assert (row.gpu, row.adjustments, row.total) == (Decimal("11000.00"), Decimal("0.00"), Decimal("11000.00"))
    close()
    after = statements_of()
    assert [(x.key, x.quantity, x.amount) for x in before.statements[0].lines] == [
        (x.key, x.quantity, x.amount) for x in after.statements[0].lines
    ]
    used = next(line for line in after.statements[0].lines if line.key.reason == "used")
    parts = drilldown.workloads(used, drilldown.scope_of(used, period_of("2026-10"))).parts
    assert sum(part.quantity for part in parts) == Decimal("1000.000000")
    assert sum(part.amount for part in parts) == Decimal("8000.00")


def test_a_commitment_is_stored_once_audited_and_never_changes(tmp_path: Path) -> None:
    apply(tmp_path, commitments=[TERMS])
    assert apply(tmp_path, commitments=[TERMS]).changes == []
    assert AuditEntry.objects.filter(action="commitment_put", subject="nlp-2026").count() == 1
    with pytest.raises(SetUpFileError, match="differs in price"):
        apply(tmp_path, commitments=[{**TERMS, "price_per_gpu_hour": "7"}])
    for statement in ("UPDATE rates_commitment SET price = 1", "DELETE FROM rates_commitment"):
        with pytest.raises(DatabaseError, match="never"), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    with pytest.raises(SetUpFileError, match="overlaps a later one"):
        apply(tmp_path, commitments=[{**TERMS, "name": "earlier", "valid_from": "2026-09-01"}])
    ended = {**TERMS, "valid_until": "2026-12-01"}
    (said,) = apply(tmp_path, commitments=[ended]).changes
    assert said.endswith("from 2026-09-30T16:00:00+00:00 until 2026-11-30T16:00:00+00:00")
    assert Commitment.objects.get().valid_until == datetime(2026, 11, 30, 16, tzinfo=UTC)
    assert apply(tmp_path, commitments=[ended]).changes == []
    with pytest.raises(SetUpFileError, match=r"nlp-2026 ends 2026-11-30T16:00:00\+00:00 and never later"):
        apply(tmp_path, commitments=[{**TERMS, "valid_until": "2027-12-01"}])
    assert apply(tmp_path, commitments=[TERMS]).changes == [], "no end says nothing of one"


def test_a_commitment_that_would_change_a_closed_month_is_refused(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_allocations(hold(1, "05T00:00", "05T01:00"))
    close()
    with pytest.raises(SetUpFileError, match="2026-10"):
        apply(tmp_path, commitments=[TERMS])
    assert Commitment.objects.count() == 0


def test_an_amount_may_stand_for_the_hours(tmp_path: Path) -> None:
    """8,000.00 at 8 are 1,000 hours; at 7 they are no whole number of them."""
    terms = {key: value for key, value in TERMS.items() if key != "gpu_hours_per_month"}
    apply(tmp_path, commitments=[{**terms, "amount_per_month": "8000.00"}])
    assert Commitment.objects.get().gpu_hours == Decimal("1000.000000")
    refused = [
        ({**terms, "name": "x", "amount_per_month": "8000.00", "price_per_gpu_hour": "7"}, "no whole number of GPU-hours"),
        ({**TERMS, "name": "x", "amount_per_month": "8000.00"}, "either the hours or the amount"),
        ({**TERMS, "name": "x", "valid_until": "2026-10-01"}, "valid_until must be after"),
        ({**TERMS, "name": "x", "team": "nobody"}, "not declared"),
    ]
    for entry, message in refused:
        with pytest.raises(SetUpFileError, match=message):
            apply(tmp_path, commitments=[entry])


def test_focus_distinguishes_the_purchase_from_its_use(tmp_path: Path) -> None:
    """F13: bought 8,000 billed and 0 effective; used 6,800 and unused 1,200 effective and 0 billed."""
    apply(tmp_path, commitments=[TERMS])
    ingest_allocations(hold(1, "05T00:00", "08T13:00"))
    close()
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    rows = file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv")
    sums: dict[tuple[str, str], list[Decimal]] = {}
    for row in rows:
        costs = sums.setdefault((row["ChargeCategory"], row["CommitmentDiscountStatus"]), [Decimal(0)] * 4)
        for index, name in enumerate(("BilledCost", "EffectiveCost", "ListCost", "CommitmentDiscountQuantity")):
            costs[index] += Decimal(row[name])
    assert sums == {
        ("Purchase", ""): [Decimal(8000), Decimal(0), Decimal(8000), Decimal(1000)],
        ("Usage", "Used"): [Decimal(0), Decimal(6800), Decimal(8500), Decimal(850)],
        ("Usage", "Unused"): [Decimal(0), Decimal(1200), Decimal(1200), Decimal(150)],
    }
    assert {row["CommitmentDiscountId"] for row in rows} == {"nlp-2026"}
    bought = [row for row in rows if row["ChargeCategory"] == "Purchase"]
    facts = {(row["ResourceId"], row["PricingCategory"], row["ConsumedQuantity"]) for row in bought}
    assert facts == {("nlp-2026", "Standard", "")}
    unused = next(row for row in rows if row["CommitmentDiscountStatus"] == "Unused")
    prices = {(row["ChargeCategory"], row["CommitmentDiscountStatus"], row["SkuPriceId"]) for row in rows}
    assert {(*name, sku) for *name, sku in prices if name[0] == "Purchase" or name[1]} == {
        ("Purchase", "", "NVIDIA-H800/commitment"), ("Usage", "Unused", "NVIDIA-H800/commitment"),
        ("Usage", "Used", "NVIDIA-H800"),
    }  # fmt: skip
    assert (unused["ChargePeriodStart"], unused["ChargePeriodEnd"]) == ("2026-09-30T16:00:00Z", "2026-10-31T16:00:00Z")
    assert json.loads(unused["ContractApplied"]) == {"Elements": [{
        "ContractId": "nlp-2026", "ContractCommitmentId": "nlp-2026", "ContractCommitmentAppliedQuantity": 150.0,
        "ContractCommitmentAppliedUnit": "GPU-Hours",
    }]}  # fmt: skip
    used = [row for row in rows if row["CommitmentDiscountStatus"] == "Used"]
    assert (len(used), used[0]["ChargePeriodStart"], used[0]["ResourceName"]) == (85, "2026-10-05T00:00:00Z", "uid-1")
    details = file_rows(tmp_path / "focus-invoice-detail-2026-10.csv")
    assert sorted((row["ChargeCategory"], row["BilledCost"]) for row in details) == [
        ("Purchase", "1200.00"), ("Purchase", "6800.00"),
    ]  # fmt: skip


def test_focus_parts_an_hour_that_is_covered_in_part_and_follows_late_usage(tmp_path: Path) -> None:
    """25 h bought, ten devices for four hours: hours 1 and 2 covered, of hour 3 five device-hours; then 15 on demand."""
    apply(tmp_path, commitments=[{**TERMS, "gpu_hours_per_month": "25", "valid_until": "2026-11-01"}])
    ingest_allocations(hold(1, "05T00:00", "05T01:00"))
    close()
    ingest_allocations(hold(2, "05T01:00", "05T04:00"))
    close("2026-11", NOVEMBER_OVER)
    call_command("export_focus", "2026-11", "--out", str(tmp_path))
    rows = file_rows(tmp_path / "focus-cost-and-usage-2026-11.csv")
    reported = [
        (row["ChargePeriodStart"][11:13], row["ChargeCategory"], row["CommitmentDiscountStatus"], row["PricingQuantity"],
         row["BilledCost"], row["EffectiveCost"])
        for row in rows
    ]  # fmt: skip
    assert sorted(reported) == sorted([
        ("02", "Usage", "", "5", "50.00", "50.00"), ("03", "Usage", "", "10", "100.00", "100.00"),
        ("16", "Purchase", "", "-15", "-120.00", "0.00"), ("16", "Usage", "Unused", "-15", "0.00", "-120.00"),
        ("01", "Purchase", "", "15", "120.00", "0.00"),
        ("01", "Usage", "Used", "10", "0.00", "80.00"), ("02", "Usage", "Used", "5", "0.00", "40.00"),
    ])  # fmt: skip
    assert {row["ChargeClass"] for row in rows} == {"Correction"}
    assert {row["ListUnitPrice"] for row in rows if row["ChargeCategory"] == "Purchase"} == {"8"}
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    rows += file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv")
    hours = dict.fromkeys(("", "Used", "Unused"), Decimal(0))
    for row in rows:
        if row["CommitmentDiscountId"]:
            hours[row["CommitmentDiscountStatus"]] += Decimal(row["CommitmentDiscountQuantity"])
    assert hours == {"": Decimal(25), "Used": Decimal(25), "Unused": Decimal(0)}  # bought, and what became of it


def test_the_journal_and_the_documents_name_the_commitment(tmp_path: Path) -> None:
    apply(tmp_path, commitments=[TERMS])
    ingest_allocations(hold(1, "05T00:00", "08T13:00"))
    close()
    call_command("export_journal", "2026-10", "--out", str(tmp_path / "journal.csv"))
    entries = [(row["debit"], row["credit"], row["text"].partition(": ")[2]) for row in file_rows(tmp_path / "journal.csv")]
    assert entries == [("8000.00", "", "commitments"), ("", "8000.00", "commitments")]
    invoice = Invoice.objects.get()
    pdf = PdfRenderer().render(document_of(invoice), sha256=invoice.sha256, issued_at=invoice.issued_at, language="en")
    text = " ".join(page.extract_text() for page in PdfReader(io.BytesIO(pdf)).pages)
    assert "Commitments" in text
    assert "Unused" in text


def test_every_line_has_a_page_that_says_what_it_is(tmp_path: Path) -> None:
    apply(tmp_path, commitments=[TERMS])
    ingest_allocations(hold(1, "05T00:00", "08T13:00"))
    close()
    client = signed_in(person("fin", "finance"))
    reported = {}
    for line in statements_of().statements[0].lines:
        response = client.get(f"/teams/nlp/lines/{line.digest}/", {"month": "2026-10"})
        assert response.status_code == 200
        reported[line.key.reason] = response.content.decode()
    assert "do not roll over" in reported["unused"]
    assert "in the order of time" in reported["used"]
    assert "pod/uid-1" in reported["used"]
    page = client.get("/teams/nlp/", {"month": "2026-10"}).content.decode()
    assert "Not used by any namespace" in page
    assert "1,200.00" in page
    assert client.get(f"/invoices/{Invoice.objects.get().pk}/").status_code == 200


def test_usage_that_turns_out_to_be_the_teams_is_taken_from_the_unused_share(tmp_path: Path) -> None:
    """cv paid 100 h at 10. They were nlp's: cv gets 1,000 back, nlp's 850 + 150 become 950 + 50 and its total stays."""
    apply(tmp_path, commitments=[{**TERMS, "valid_until": "2026-11-01"}])
    ingest_allocations(hold(1, "05T00:00", "08T13:00"), hold(2, "10T00:00", "10T10:00", namespace="cv"))
    close()
    people()
    change = retroactive_propose(
        kind="namespace", name="cv-was-nlp", fact={"scope": "hq-1", "name": "cv", "team": "nlp"},
        valid_from=datetime(2026, 9, 30, 16, tzinfo=UTC), valid_until=None, reason="wrong namespace", evidence="INC-3",
        actor="sam", now=IN_NOVEMBER,
    )  # fmt: skip
    moved = {(one.team, one.month): one.difference for one in effect_of(change).by_team_and_month()}
    assert moved == {("cv", "2026-10"): Decimal("-1000.00"), ("nlp", "2026-10"): Decimal("0.00")}
    for team in ("cv", "nlp"):
        retroactive_acknowledge(change_id=change.pk, team=team, actor="lea", now=IN_NOVEMBER)
    retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER)
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    notes = {(note.team.code, note.kind): note.total for note in Note.objects.select_related("team")}
    assert notes == {
        ("cv", "credit"): Decimal("-1000.00"), ("nlp", "credit"): Decimal("-1200.00"), ("nlp", "rebill"): Decimal("1200.00"),
    }  # fmt: skip
    assert proofs_hold("2026-10", "2026-11")
    call_command("export_focus", "2026-11", "--out", str(tmp_path))
    rows = file_rows(tmp_path / "focus-cost-and-usage-2026-11.csv")
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal("-1000.00")


def test_the_report_still_accounts_for_every_second(tmp_path: Path) -> None:
    apply(tmp_path, commitments=[TERMS])
    ingest_allocations(hold(1, "05T00:00", "08T13:00"))
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert report.closable
    assert [check.name for check in report.checks if not check.ok] == []
    assert report.gpu_seconds["charged"] == 850 * 3600
    close()
    report = build_report(period_of("2026-10"), now=OCTOBER_OVER)
    assert [check.name for check in report.checks if not check.ok] == []


def test_focus_states_the_terms_that_its_rows_refer_to(tmp_path: Path) -> None:
    """8 instead of 10 is 20 % off; nlp-2026 is followed in mid-month by terms without an end."""
    after = {**TERMS, "name": "nlp-b", "price_per_gpu_hour": "10", "valid_from": "2026-10-16"}
    year = {**TERMS, "name": "cv-2026", "team": "cv", "valid_from": "2026-01-01", "valid_until": "2027-01-01"}
    apply(tmp_path, commitments=[TERMS, after, year])
    close()
    call_command("export_focus", "2026-10", "--out", str(tmp_path))
    rows = {row["ContractCommitmentId"]: row for row in file_rows(tmp_path / "focus-contract-commitment-2026-10.csv")}
    names = ("PeriodStart", "PeriodEnd", "LifecycleStatus", "DurationType", "BenefitCategory", "DiscountPercentage",
             "Quantity", "Cost", "Unit")  # fmt: skip
    assert {name: tuple(row[f"ContractCommitment{column}"] for column in names) for name, row in rows.items()} == {
        "nlp-2026": ("2026-09-30T16:00:00Z", "2026-10-15T16:00:00Z", "Superseded", "15 Days", "Discount", "0.2",
                     "1000", "8000.00", "GPU-Hours"),
        "nlp-b": ("2026-10-15T16:00:00Z", "2026-10-31T16:00:00Z", "Active", "1 Month", "Other", "", "1000", "10000.00",
                  "GPU-Hours"),
        "cv-2026": ("2025-12-31T16:00:00Z", "2026-12-31T16:00:00Z", "Active", "1 Year", "Discount", "0.2", "1000",
                    "8000.00", "GPU-Hours"),
    }  # fmt: skip
    assert json.loads(rows["cv-2026"]["ContractCommitmentApplicability"]) == {
        "InclusionOperator": "And",
        "Inclusions": [
            {"Dimension": "BillingAccountId", "Operator": "In", "Values": ["cv"]},
            {"Dimension": "SkuId", "Operator": "In", "Values": ["NVIDIA-H800"]},
        ],
    }
    table = pq.read_table(tmp_path / "focus-contract-commitment-2026-10.parquet")
    assert table.schema.equals(CONTRACT_COMMITMENT, check_metadata=False)
    usage = file_rows(tmp_path / "focus-cost-and-usage-2026-10.csv")
    assert {row["CommitmentDiscountId"] for row in usage} == set(rows)


def test_a_team_sees_its_own_commitments_through_the_api(tmp_path: Path) -> None:
    apply(tmp_path, commitments=[TERMS, {**TERMS, "name": "cv-2026", "team": "cv", "valid_until": "2027-10-01"}])
    ours, theirs = program("invoices:read"), program("invoices:read", team="nlp")

    def listed(reader: Client, **query: str) -> Any:
        return reader.get("/api/v1/commitments", query).json()["results"]

    assert [item["name"] for item in listed(ours)] == ["cv-2026", "nlp-2026"]
    assert listed(theirs) == listed(ours, team="nlp") == [
        {"name": "nlp-2026", "team": "nlp", "accelerator": "NVIDIA-H800", "gpu_hours_per_month": "1000.000000",
         "price_per_gpu_hour": "8.0000", "valid_from": "2026-09-30T16:00:00Z", "valid_until": None}
    ]  # fmt: skip


def test_months_compared_count_a_commitment_as_devices_before_and_after_the_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 hours bought at 8.00, of which 2 are used: 800.00 of devices on the estimate, the overview and the invoice."""
    people()
    apply(tmp_path, commitments=[{**TERMS, "gpu_hours_per_month": "100"}])
    ingest_allocations(hold(1, "10T00:00", "10T01:00", quantity=2))
    monkeypatch.setattr("django.utils.timezone.now", lambda: OCTOBER_OVER)
    finance, parts = signed_in("sam"), ("gpu", "tokens", "adjustments")

    def shown() -> list[list[str]]:
        files = ("/recovery/?month=2026-10&table=months&as=csv", "/overview/?month=2026-10&table=teams&as=csv")
        return [[row[part] for part in parts] for name in files for row in rows_of(finance, name)]

    assert shown() == [["800.00", "0.00", "0.00"]] * 2
    close()
    assert shown() == [["800.00", "0.00", "0.00"]] * 2
