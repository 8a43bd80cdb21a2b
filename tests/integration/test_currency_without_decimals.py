"""A currency without decimals has none on lines, totals, documents, journals and FOCUS; what is no currency is refused."""

import csv
import io
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command

from billing.explorer.selectors import Explorer
from billing.invoices.models import Invoice
from billing.invoices.selectors import document_of
from billing.invoices.services.documents import document_file
from billing.rates.models import PriceVersion
from billing.setup.file import SetUpFileError
from pricing.allocation import Method, Split
from pricing.money import amount_places, amounts_in, round_amount, split_amount
from pricing.number_text import amount_text
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, signed_in, token_record
from tests.factories.corrections import bill, people, proofs_hold
from tests.factories.explorer import IN_DECEMBER, asked, bars
from tests.factories.pages import file_rows

pytestmark = pytest.mark.django_db
YEN = {**SET_UP["billing"], "currency": "JPY"}


@pytest.fixture(autouse=True)
def cents_again() -> Iterator[None]:
    yield
    amounts_in("CNY")


def test_amounts_are_rounded_and_split_in_units_of_the_currency() -> None:
    amounts_in("JPY")
    assert (amount_places(), round_amount(Decimal("209.5")), round_amount(Decimal("-209.5"))) == (0, 210, -210)
    assert split_amount(Decimal(100), [1, 1, 1]) == [34, 33, 33]
    assert Split(Method.EVEN).of(Decimal(100), {"a": 1, "b": 1, "c": 1}) == {"a": 34, "b": 33, "c": 33}
    assert (amount_text(Decimal("210.00")), amount_text(Decimal(-0))) == ("210", "0")
    amounts_in("KRW")
    assert amount_places() == 0
    amounts_in("USD")
    assert (amount_places(), amount_text(Decimal(210))) == (2, "210.00")


def billed(directory: Path) -> Invoice:
    """20.962222 GPU-hours at 10.0000 are 209.62, so 210; 800 uncached tokens at 1,875.0000 per million are 1.5, so 2."""
    people()
    tokens = [{"model": "llama-3-8b", "input": "1875.0000", "cache_read": "0.0000", "output": "0.0000"}]
    apply(directory, billing=YEN, price_versions=[{**SET_UP["price_versions"][0], "tokens": tokens}])
    ingest_allocations(allocation_record())
    ingest_tokens(token_record())
    bill()
    return Invoice.objects.get(team__code="nlp")


def test_a_month_in_yen_has_whole_amounts_everywhere(tmp_path: Path) -> None:
    invoice = billed(tmp_path)
    document = document_of(invoice)
    assert (document["total"], invoice.total) == ("212", 212)
    assert sorted(line["amount"] for line in document["lines"]) == ["0", "0", "2", "210"]
    assert {one["kind"]: one["amount"] for one in document["subtotals"]} == {"gpu": "210", "tokens": "2"}
    rows = list(csv.DictReader(io.StringIO(document_file(invoice, "csv").decode("utf-8-sig"))))
    assert sorted(row["amount"] for row in rows) == ["0", "0", "2", "210"]
    call_command("export_journal", "2026-10", "--out", str(tmp_path / "journal.csv"))
    journal = file_rows(tmp_path / "journal.csv")
    assert {row[side] for row in journal for side in ("debit", "credit")} - {""} <= {"210", "2", "212"}
    call_command("export_focus", "2026-10", "--out", str(tmp_path / "focus"))
    focus = [row["BilledCost"] for row in file_rows(tmp_path / "focus" / "focus-cost-and-usage-2026-10.csv")]
    assert sorted(focus, key=int) == ["0", "0", "2", "50", "80", "80"]  # by hours: 8 GPUs for 1 h, 1 h, and 37 min 13 s
    assert proofs_hold("2026-10")
    page = signed_in("sam").get(f"/invoices/{invoice.pk}/").content.decode()
    assert "212" in page
    assert "212.0" not in page


def test_the_explorer_splits_yen_into_whole_ones(tmp_path: Path) -> None:
    """210 of three hours that are 80, 80 and 50 of them, and 2 of tokens: as the documents, whole in every hour."""
    billed(tmp_path)
    explorer = Explorer(frozenset({"nlp"}), IN_DECEMBER, "Asia/Shanghai")
    month = explorer.explore(asked("month=2026-10&by=kind"))
    assert {group.names[0]: str(group.total) for group in month.groups} == {"gpu": "210", "tokens": "2"}
    days = [bar for group in month.groups for bar in bars(group, month).values()]
    assert (str(month.total.total), {str(bar) for bar in days} <= {"210", "2", "1"}) == ("212", True)
    day = next(iter(bars(month.groups[0], month)))
    found = explorer.explore(asked(f"from={day}&to={day}&step=hour&by=kind&kind=gpu"))
    assert sorted(str(bar) for bar in bars(found.groups[0], found).values()) == ["50", "80", "80"]
    client = signed_in("sam")
    answer = client.get("/api/v1/explore?month=2026-10&by=kind").json()
    assert answer["total"]["total"] == "212"
    assert "212.0" not in client.get("/explorer/?month=2026-10").content.decode()


@pytest.mark.parametrize(
    ("currency", "says"),
    [
        ("ZZZ", "'ZZZ' is no currency of ISO 4217"), ("XAU", "'XAU' is no currency of ISO 4217"),
        ("cny", "'cny' is no currency of ISO 4217"), ("KWD", "KWD has 3 decimals"), ("CLF", "CLF has 4 decimals"),
    ],
)  # fmt: skip
def test_what_is_no_currency_or_has_other_decimals_is_refused_by_name(tmp_path: Path, currency: str, says: str) -> None:
    with pytest.raises(SetUpFileError, match=f"billing.currency: {says}"):
        apply(tmp_path, billing={**YEN, "currency": currency})
    assert not PriceVersion.objects.exists()


def test_budgets_in_yen_have_no_decimals(tmp_path: Path) -> None:
    with pytest.raises(SetUpFileError, match=r"budgets.0..amount: '100.50' must be a decimal from 1 to 1e12"):
        apply(tmp_path, billing=YEN, budgets=[{"team": "nlp", "period": "month", "amount": "100.50"}])
