"""One month, read everywhere: pages, API, files, exports and journal say the same amounts to the cent.

October of three teams, by hand. nlp-train: 8 H800 for 2 h 37 min 13 s and 2 for 3 h are 26.962222 GPU-h at 10.0000, 269.62;
its second job wasted (HFU 0.15): 20 % of 60.00 more, its first did well (MFU 0.60): 10 % of 209.6222 less. 750,000 tokens in
at 2, 250,000 from the cache at 0.2, 123,456 out at 8 a million: 1.50, 0.05, 0.99. audio: 6 slice-hours at 1.7143 and a
third of a GPU-hour. cv is only shown its 10.00. In November 4.00 of the first line are credited.
"""

import io
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote

import openpyxl
import pyarrow.parquet as pq
import pypdf
import pytest
from django.core.management import call_command
from django.test import Client

from billing.budgets.models import Budget
from billing.budgets.services import standings_refresh
from billing.closing.services.closing import period_close
from billing.closing.services.showback import billing_mode_put
from billing.closing.services.snapshots import month_assess
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of
from billing.invoices.services.invoices import invoice_rebuild, invoice_void
from billing.portal.statements import lines_of as lines_of_invoice
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, person, token_record
from tests.factories.corrections import NOVEMBER_OVER, OCTOBER_OVER, bill, credit, people, whole
from tests.factories.months import DECEMBER_OVER
from tests.factories.pages import csv_rows
from tests.factories.usage import POLICY, hold, sample

pytestmark = pytest.mark.django_db

NLP = Counter({
    ("NVIDIA-H800", "269.62"): 1, ("NVIDIA-H800", "12.00"): 1, ("NVIDIA-H800", "-20.96"): 1,
    ("llama-3-8b", "1.50"): 1, ("llama-3-8b", "0.05"): 1, ("llama-3-8b", "0.99"): 1,
})  # fmt: skip
AUDIO = Counter({("nvidia.com/mig-1g.10gb", "10.29"): 1, ("NVIDIA-H800", "3.33"): 1})
CV = Counter({("NVIDIA-H800", "10.00"): 1})
LINES = {"nlp": NLP, "audio": AUDIO, "cv": CV}
NAMES = {"nlp": "NLP Research", "audio": "Audio"}
TOTALS = {"nlp": "263.20", "audio": "13.62"}
CHARGED, SHOWN_ONLY = "276.82", "10.00"
CREDITED = "-4.00"
SKUS = {"NVIDIA-H800", "llama-3-8b", "nvidia.com/mig-1g.10gb"}


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """The usage of October, nothing closed."""
    people()
    person("everything", "finance")
    apply(
        for_all_tests, efficiency_policies=[POLICY], budgets=[{"team": "nlp", "amount": "526.40"}],
        teams=[*SET_UP["teams"], {"code": "audio", "name": "Audio", "cost_center": "CC-230"}],
        ownership=[*SET_UP["ownership"],
                   {"cluster": "hq-1", "namespace": "audio", "team": "audio", "valid_from": "2026-01-01"}],
    )  # fmt: skip
    billing_mode_put(team="cv", from_month="2026-10", mode="shadow", reason="first", actor="fin", now=OCTOBER_OVER)
    ingest_allocations(
        allocation_record(1),
        hold(2, "2026-10-11T00:00:00Z", "2026-10-11T03:00:00Z", quantity=2),
        hold(3, "2026-10-12T00:00:00Z", "2026-10-12T01:00:00Z", quantity=1, namespace="cv"),
        hold(4, "2026-10-12T00:00:00Z", "2026-10-12T02:00:00Z", quantity=3, namespace="audio",
             resource="nvidia.com/mig-1g.10gb", device_fraction="0.142857"),
        hold(5, "2026-10-12T00:00:00Z", "2026-10-12T00:20:00Z", quantity=1, namespace="audio"),
    )  # fmt: skip
    sample("2026-10-10T00:00:00Z", "2026-10-10T02:37:13Z", "75464", "0.60", "0.70")
    sample("2026-10-11T00:00:00Z", "2026-10-11T03:00:00Z", "21600", "0.10", "0.15", uid="uid-2")
    ingest_tokens(token_record(input_tokens=1_000_000, cache_read_input_tokens=250_000, output_tokens=123_456))


@pytest.fixture(scope="module")
def issued(october: None) -> None:
    """October closed and issued, one of its lines credited in November, November closed."""
    bill()
    mine = Invoice.objects.get(team__code="nlp")
    credit(whole(1, amount=Decimal("4.00")), number=str(mine.number))
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)


@dataclass
class Tables(HTMLParser):
    """The rows of all tables of a page, cell by cell, as a person reads them."""

    rows: list[list[str]] = field(default_factory=list)
    text: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data

    def __hash__(self) -> int:
        return id(self)


def shown(client: Client, address: str) -> Tables:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    tables = Tables()
    tables.feed(response.content.decode())
    return tables


def plain(text: str) -> str:
    """An amount as programs write it: no separators, an ordinary minus."""
    return text.strip().replace(",", "").replace("\N{MINUS SIGN}", "-")


def lines_of(rows: Iterable[list[str]]) -> Counter[tuple[str, str]]:
    """SKU and amount (the last cell) of the rows that are lines."""
    found: Counter[tuple[str, str]] = Counter()
    for row in rows:
        sku = next((sku for cell in row[:2] for sku in SKUS if cell.strip().removeprefix("Credit: ").startswith(sku)), None)
        if sku and re.fullmatch(r"-?\d+\.\d\d", plain(row[-1])):
            found[sku, plain(row[-1])] += 1
    return found


def of_document(lines: Iterable[dict[str, Any]]) -> Counter[tuple[str, str]]:
    return Counter((line["sku"], str(line["amount"])) for line in lines)


def invoices() -> dict[str, Invoice]:
    return {invoice.team.code: invoice for invoice in Invoice.objects.filter(period__month="2026-10")}


def file(client: Client, address: str) -> bytes:
    response = client.get(address)
    assert response.status_code == 200, (address, response.status_code)
    return b"".join(response) if response.streaming else response.content


def amounts_of_pdf(body: bytes) -> list[str]:
    text = "\n".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(body)).pages)
    return re.findall(r"(?<![\d.])-?[\d,]*\d\.\d\d(?!\d)", text.replace("\N{MINUS SIGN}", "-"))


def workbook(body: bytes) -> tuple[Counter[tuple[str, str]], set[str]]:
    """SKU and amount of the lines sheet, and every amount of the summary."""
    book = openpyxl.load_workbook(io.BytesIO(body), data_only=True)
    summary, lines = book.worksheets
    head = next(row for row in lines.iter_rows(values_only=True) if row[0])
    amount = next(index for index, name in enumerate(head) if "Amount" in str(name))
    found: Counter[tuple[str, str]] = Counter()
    for row in lines.iter_rows(values_only=True):
        sku = next((cell for cell in row if cell in SKUS), None)
        if sku:
            found[str(sku), f"{Decimal(str(row[amount])):.2f}"] += 1
    facts = {f"{Decimal(str(cell)):.2f}" for row in summary.iter_rows(values_only=True) for cell in row
             if isinstance(cell, int | float)}  # fmt: skip
    return found, facts


@pytest.mark.usefixtures("october")
def test_the_preview_of_the_page_is_the_invoice_to_come() -> None:
    client = factories.signed_in("everything")
    page = shown(client, "/?month=2026-10")
    assert (plain(page.rows[-1][-2]), SHOWN_ONLY in page.text) == (CHARGED, True)
    for team, lines in LINES.items():
        assert lines_of(shown(client, f"/teams/{team}/?month=2026-10").rows) == lines, team
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    assert {code: of_document(invoice.draft["lines"]) for code, invoice in invoices().items()} == LINES


@pytest.mark.usefixtures("october")
@pytest.mark.parametrize("state", ["live", "kept", "closed"])
def test_spending_and_recovery_say_the_same_before_and_after_the_close(state: str, settings: Any) -> None:
    """As it is assessed with the view, as the scheduler kept it, and as it was invoiced; the page and its file."""
    settings.CACHE_STATEMENTS_ABOVE_LINES = 1 if state == "kept" else 10**9
    if state == "kept":
        month_assess(month="2026-10", now=OCTOBER_OVER)
    if state == "closed":
        period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    client = factories.signed_in("everything")
    for by, expected in SPLITS.items():
        page = shown(client, f"/spending/?month=2026-10&by={by}")
        assert money_in(page.rows, "Total") == CHARGED, by
        rows = csv_rows(file(client, f"/spending/?month=2026-10&by={by}&table=split&as=csv"))
        assert {row[by]: row["total"] for row in rows} == expected, by
        named = [name for name in expected if name]
        found = {name: money_in(page.rows, NAMES.get(name, name) if by == "team" else name) for name in named}
        assert found == {name: expected[name] for name in named}
    jobs = csv_rows(file(client, "/spending/?month=2026-10&by=workload&table=split&as=csv"))
    assert sum(Decimal(row["total"]) for row in jobs) == Decimal(CHARGED)
    assert {row["workload"]: row["total"] for row in jobs}["pod/uid-2"] == "72.00"  # 60.00 and a fifth of it
    assert money_in(shown(client, "/spending/?month=2026-10&team=cv").rows, "Total") == SHOWN_ONLY
    recovery = shown(client, "/recovery/?month=2026-10")
    assert CHARGED in recovery.text
    pools = csv_rows(file(client, "/recovery/?month=2026-10&table=pools&as=csv"))
    tokens = csv_rows(file(client, "/recovery/?month=2026-10&table=tokens&as=csv"))
    assert sum(Decimal(row["billed"]) for row in pools) == Decimal("274.28")
    assert [money_in([row], "Total") for row in recovery.rows if row[0].strip() == "Total"] == ["274.28", "2.54"]
    assert {row["token_class"]: row["billed"] for row in tokens} == {"input": "1.50", "cache_read": "0.05", "output": "0.99"}


@pytest.mark.usefixtures("october")
def test_a_budget_has_spent_what_the_preview_and_then_the_invoice_says() -> None:
    """Half of 526.40, before the close, after it, and after an invoice was voided and built again."""
    last = OCTOBER_OVER.replace(month=10, day=31, hour=15, minute=59)  # of October in the billing zone
    (before,) = standings_refresh(now=last)
    assert (str(before.spent), before.period) == (TOTALS["nlp"], "2026-10")
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    invoice_void(month="2026-10", team="nlp", reason="again", actor="sam")
    (voided,) = standings_refresh(now=last.replace(second=15))
    assert str(voided.spent) == TOTALS["nlp"]
    reader = factories.signed_in("everything")
    for address in ("/overview/?", "/teams/nlp/?", "/spending/?"):
        assert "The draft of nlp was voided" in shown(reader, f"{address}month=2026-10").text, address
    assert "nlp: what it is charged is unknown" in shown(reader, "/explorer/?month=2026-10").text
    invoice_rebuild(month="2026-10", team="nlp", actor="sam")
    (after,) = standings_refresh(now=last.replace(second=30))
    assert str(after.spent) == TOTALS["nlp"]
    client = factories.signed_in("everything")
    row = next(row for row in shown(client, "/?month=2026-10").rows if row and row[0].strip().startswith("NLP Research"))
    assert "50.0%" in row[6]
    assert "526.40" in shown(client, "/teams/nlp/?month=2026-10").text


@pytest.mark.usefixtures("issued")
def test_pages_of_an_issued_month_say_what_its_documents_say() -> None:
    client = factories.signed_in("everything")
    overview = shown(client, "/?month=2026-10")
    total = next(row for row in overview.rows if row[0].strip() == "Total")
    assert [plain(cell) for cell in total[2:6]] == ["283.24", "2.54", "-8.96", CHARGED]
    assert f"Onlyshown,notcharged{SHOWN_ONLY}" in re.sub(r"\s", "", overview.text)
    for code, invoice in invoices().items():
        assert lines_of(shown(client, f"/invoices/{invoice.pk}/").rows) == LINES[code], code
        assert lines_of(shown(client, f"/teams/{code}/?month=2026-10").rows) == LINES[code], code
        assert of_document(document_of(invoice)["lines"]) == LINES[code]
    listed = [plain(row[-1]) for row in shown(client, "/invoices/").rows]
    assert sorted(listed[:-3]) == sorted(["Total CNY", *TOTALS.values(), SHOWN_ONLY])
    assert listed[-3:] == [CHARGED, CHARGED, SHOWN_ONLY]  # all of it, issued, only shown


@pytest.mark.usefixtures("issued")
def test_every_file_and_endpoint_of_an_invoice_says_the_same() -> None:
    client = factories.signed_in("everything")
    listed = client.get("/api/v1/invoices?month=2026-10").json()["results"]
    assert {row["team"]: row["total"] for row in listed} == TOTALS  # a shadow is in no door that bills
    for row in listed:
        code, at = row["team"], f"/api/v1/invoices/{row['number']}"
        mine = invoices()[code]
        assert of_document(row["lines"]) == of_document(client.get(f"{at}.json").json()["lines"]) == LINES[code]
        for suffix in ("csv", "xlsx", "pdf"):
            body = file(client, f"{at}.{suffix}")
            assert body == file(client, f"/invoices/{mine.pk}/download.{suffix}"), suffix
        rows = csv_rows(file(client, f"{at}.csv"))
        assert of_document(rows) == LINES[code]
        found, summary = workbook(file(client, f"{at}.xlsx"))
        assert (found, TOTALS[code] in summary) == (LINES[code], True)
        printed = Counter(amounts_of_pdf(file(client, f"{at}.pdf")))
        assert printed >= Counter(amount for _, amount in LINES[code].elements()), code
        assert TOTALS[code] in printed


@pytest.mark.usefixtures("issued")
def test_charges_rounded_once_are_the_lines() -> None:
    charges = factories.signed_in("everything").get("/api/v1/charges?month=2026-10").json()["results"]
    teams = [charge for charge in charges if not charge["platform"]]
    assert len(teams) == sum(sum(lines.values()) for lines in LINES.values())
    assert {charge["team"] for charge in teams} == set(LINES)
    assert all(proof.holds for proof in period_verify(month="2026-10"))


@pytest.mark.usefixtures("issued")
def test_focus_and_the_journal_add_up_to_the_invoices(tmp_path: Path) -> None:
    numbers = {str(invoice.number): code for code, invoice in invoices().items() if invoice.number}
    call_command("export_focus", "2026-10", "--out", str(tmp_path / "focus"))
    for name in ("cost-and-usage", "invoice-detail"):
        parquet = pq.read_table(tmp_path / "focus" / f"focus-{name}-2026-10.parquet").to_pylist()
        text = csv_rows((tmp_path / "focus" / f"focus-{name}-2026-10.csv").read_bytes())
        door = factories.signed_in("everything").get(f"/api/v1/focus/2026-10?data_set={name}").json()["results"]
        for rows in (parquet, text, door):
            sums: dict[str, Decimal] = {}
            lines: dict[tuple[str, str], Decimal] = {}
            for row in rows:
                code, amount = numbers[row["InvoiceId"]], Decimal(str(row["BilledCost"]))
                sums[code] = sums.get(code, Decimal(0)) + amount
                key = (code, row["InvoiceDetailId"])
                lines[key] = lines.get(key, Decimal(0)) + amount
            assert {code: f"{total:.2f}" for code, total in sums.items()} == TOTALS
            by_line = Counter((code, f"{amount:.2f}") for (code, _), amount in lines.items())
            assert by_line == Counter((code, amount) for code in TOTALS for _, amount in LINES[code].elements())
    call_command("export_journal", "2026-10", "--out", str(tmp_path / "j.csv"))
    journal = csv_rows((tmp_path / "j.csv").read_bytes())
    debits = {number: Decimal(0) for number in numbers}
    for row in journal:
        if row["account"] == "internal AI compute":
            debits[row["invoice_number"]] += Decimal(row["debit"] or 0) - Decimal(row["credit"] or 0)
    assert {numbers[number]: f"{total:.2f}" for number, total in debits.items()} == TOTALS


@pytest.mark.usefixtures("issued")
def test_a_credit_note_says_the_same_everywhere(tmp_path: Path) -> None:
    client, note = factories.signed_in("everything"), Note.objects.get()
    assert lines_of(shown(client, f"/notes/{note.pk}/").rows) == Counter({("NVIDIA-H800", CREDITED): 1})
    assert plain(shown(client, "/corrections/").rows[1][-1]) == CREDITED
    at = f"/api/v1/credit-notes/{note.number}"
    answer = client.get(f"{at}.json").json()
    assert (answer["total"], [line["amount"] for line in answer["lines"]]) == (CREDITED, [CREDITED])
    for suffix in ("csv", "xlsx", "pdf"):
        assert file(client, f"{at}.{suffix}") == file(client, f"/notes/{note.pk}/download.{suffix}")
    assert [row["amount"] for row in csv_rows(file(client, f"{at}.csv"))] == [CREDITED]
    assert workbook(file(client, f"{at}.xlsx"))[0] == Counter({("NVIDIA-H800", CREDITED): 1})
    assert CREDITED in amounts_of_pdf(file(client, f"{at}.pdf"))
    call_command("export_focus", "2026-11", "--out", str(tmp_path / "focus"))
    rows = csv_rows((tmp_path / "focus" / "focus-cost-and-usage-2026-11.csv").read_bytes())
    assert {row["InvoiceId"] for row in rows} == {note.number}
    assert sum(Decimal(row["BilledCost"]) for row in rows) == Decimal(CREDITED)
    call_command("export_journal", "2026-11", "--out", str(tmp_path / "j.csv"))
    assert [(row["invoice_number"], row["debit"], row["credit"]) for row in csv_rows((tmp_path / "j.csv").read_bytes())] == [
        (note.number, "", "4.00"), (note.number, "4.00", ""),
    ]  # fmt: skip


@pytest.mark.usefixtures("issued")
def test_the_close_report_accounts_for_every_second_that_was_billed() -> None:
    client = factories.signed_in("everything")
    report = client.get("/api/v1/periods/2026-10/report").json()
    held = 8 * 9433 + 2 * 10800 + 3600 + 1200  # slices are counted by their share: 3 x 0.142857 x 7200 s
    assert Decimal(str(report["gpu_seconds"]["charged"])) == held + Decimal("0.142857") * 3 * 7200
    assert all(check["ok"] for check in report["checks"])


SPLITS = {
    "team": {"nlp": TOTALS["nlp"], "audio": TOTALS["audio"]},
    "namespace": {"nlp-train": "260.66", "audio": "13.62", "": "2.54"},
    "model": {"llama-3-8b": "2.54", "": "274.28"},
    "accelerator": {"NVIDIA-H800": "263.99", "nvidia.com/mig-1g.10gb": "10.29", "": "2.54"},
    "site": {"hq-1": "274.28", "": "2.54"},
    "consumer": {"nlp-key-1": "2.54", "": "274.28"},
}  # fmt: skip
"""By hand from the lines: nlp-train 269.62 + 12.00 - 20.96; all H800 that and 3.33; tokens 1.50 + 0.05 + 0.99."""


def money_in(rows: Iterable[list[str]], name: str) -> str:
    """The last amount of the row that begins with `name`."""
    row = next(row for row in rows if row and row[0].strip().startswith(name))
    found = (re.match(r"-?\d+\.\d\d(?!\d)", plain(cell)) for cell in reversed(row))  # text after a table ends its last cell
    return next(amount.group() for amount in found if amount)


@pytest.mark.usefixtures("issued")
def test_what_came_late_is_what_the_next_invoice_corrects() -> None:
    """An hour of two cards of October, reported after November: 20.00, on the overview, its page and file, and the
    invoice.
    """
    times = {"started_at": "2026-10-30T00:00:00Z", "ended_at": "2026-10-30T01:00:00Z"}
    late = allocation_record(90, quantity=2, observed_until=times["ended_at"], **times)
    ingest_allocations(late, now=NOVEMBER_OVER)
    client = factories.signed_in("everything")
    assert '<a href="/late/?month=2026-12">20.00</a>' in client.get("/?month=2026-12").content.decode()
    assert "20.00" in [plain(cell) for row in shown(client, "/late/?month=2026-12").rows for cell in row]
    rows = csv_rows(file(client, "/late/?month=2026-12&table=lines&as=csv"))
    assert [(row["used_in"], row["team"], row["amount"]) for row in rows] == [("2026-10", "nlp", "20.00")]
    period_close(month="2026-12", actor="ops", now=DECEMBER_OVER)
    (line,) = Invoice.objects.get(period__month="2026-12").draft["lines"]
    assert (line["charge_class"], line["charge_period"], line["amount"]) == ("Correction", "2026-10", "20.00")
    live = [{name: text for name, text in row.items() if name != "data_through"} for row in rows]
    assert csv_rows(file(client, "/late/?month=2026-12&table=lines&as=csv")) == live


@pytest.mark.usefixtures("issued")
def test_every_line_and_each_level_below_it_adds_up_to_the_invoice() -> None:
    """The page of each line says its amount; its jobs and holds, or its days and hours, add up to it, in their files too."""
    client = factories.signed_in("everything")
    for code, invoice in invoices().items():
        team = csv_rows(file(client, f"/teams/{code}/?month=2026-10&table=lines&as=csv"))
        assert Counter((row["sku"], row["amount"]) for row in team) == LINES[code]
        for line in lines_of_invoice(invoice):
            at = f"/teams/{code}/lines/{line.digest}/?month=2026-10"
            page = shown(client, at)
            assert f"{line.amount:.2f}" in plain(page.text), (code, line.key)
            levels = ("days",) if line.key.kind == "tokens" else ("days", "workloads")
            for level in levels:
                rows = csv_rows(file(client, f"{at}&table={level}&as=csv"))
                assert sum(Decimal(row["amount"]) for row in rows) == line.amount, (code, line.key, level)
            if line.key.kind != "tokens":
                for row in rows:
                    held = csv_rows(file(client, f"{at}&workload={quote(row['job'])}&table=holds&as=csv"))
                    assert sum(Decimal(hold["amount"]) for hold in held) == Decimal(row["amount"])


@pytest.mark.usefixtures("issued")
def test_lists_budgets_and_searches_say_what_the_documents_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets as on the evening of the last day of October."""
    client = factories.signed_in("everything")
    listed = csv_rows(file(client, "/invoices/?table=invoices&as=csv"))
    assert {row["total"] for row in listed if row["month"] == "2026-10"} >= set(TOTALS.values())
    found = shown(client, f"/search/?q={invoices()['nlp'].number}")
    assert TOTALS["nlp"] in plain(found.text)
    months = csv_rows(file(client, "/recovery/?month=2026-10&table=months&as=csv"))
    assert {item["month"]: item["net"] for item in months} == {"2026-10": CHARGED, "2026-11": CREDITED}
    last = OCTOBER_OVER.replace(month=10, day=31, hour=15, minute=59)
    standings_refresh(now=last)
    monkeypatch.setattr("django.utils.timezone.now", lambda: last)
    budget = Budget.objects.get()
    for address in ("/budgets/", f"/budgets/{budget.pk}/"):
        assert TOTALS["nlp"] in plain(shown(client, address).text), address
    (row,) = csv_rows(file(client, "/budgets/?table=budgets&as=csv"))
    assert TOTALS["nlp"] in row.values()
    (answer,) = client.get("/api/v1/budgets").json()["results"]
    assert answer["standing"]["spent"] == TOTALS["nlp"]
