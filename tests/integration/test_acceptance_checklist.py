"""The acceptance checklist of finance: one test per line, in its order, and the tests that go further.

Each test shows its line on a small month; `docs/acceptance-checklist.md` names, per line, the tests that try the same
harder (in any order, killed at any statement, on every address), and the last test here collects every one of them.
"""

import os
import re
import signal
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from django.db import DatabaseError, connection, connections, transaction

from billing.budgets.models import Budget
from billing.budgets.services import (
    BudgetWish,
    budget_put,
    budgets_evaluate,
    days_store,
    forecasts_update,
    standings_refresh,
)
from billing.closing.services.closing import period_close
from billing.corrections.note_lines import NoteError
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice, Note
from billing.invoices.services import invoices
from billing.invoices.services.invoices import invoices_issue
from billing.rating.models import Charge, EfficiencyVerdict
from billing.setup.file import SetUpFileError
from billing.tenancy.models import Team
from pricing.money import round_amount
from tests import factories
from tests.cli import PROJECT
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, money, token_record
from tests.factories.api import program
from tests.factories.corrections import NOVEMBER_OVER, OCTOBER_OVER, bill, credit, draft, part, people, proofs_hold, whole
from tests.factories.pages import file_rows

pytestmark = pytest.mark.filterwarnings("ignore:No directory at:UserWarning")
PAGE = PROJECT / "docs" / "acceptance-checklist.md"
BANDS = {"name": "bands", "valid_from": "2026-01-01", "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50",
         "reward": "0.10"}  # fmt: skip


@pytest.fixture
def used(db: None, tmp_path: Path) -> Path:
    """October 2026: 20.962222 GPU-hours of nlp and 1 of cv at 10, and 0.8 + 0.2 + 0.1 million tokens of nlp."""
    people()
    apply(tmp_path)
    ingest_allocations(allocation_record(), hold(2, "2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z", namespace="cv"))
    ingest_tokens(token_record(input_tokens=1_000_000, cache_read_input_tokens=200_000, output_tokens=100_000))
    return tmp_path


@pytest.fixture
def billed(used: Path) -> Path:
    """The same month, closed and issued: cv 10.00; nlp 209.62 + 1.60 + 0.04 + 0.80 = 212.06."""
    bill()
    return used


def hold(number: int, start: str, end: str, **changed: Any) -> dict[str, Any]:
    """One device for so long."""
    times = {"started_at": start, "ended_at": end, "observed_until": end}
    return allocation_record(number, **{"quantity": 1, **times, **changed})


def version(name: str, valid_from: str, price: str) -> dict[str, Any]:
    return {**SET_UP["price_versions"][0], "name": name, "valid_from": valid_from,
            "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": price}]}  # fmt: skip


def documents() -> list[tuple[Any, ...]]:
    return list(Invoice.objects.order_by("sequence").values_list("number", "team__code", "total", "sha256", "document"))


def lines(month: str) -> list[tuple[Any, ...]]:
    """Quantity, price, amount, month and class of every line of nlp's invoice."""
    invoice = Invoice.objects.get(team__code="nlp", period__month=month)
    return [
        (line["quantity"], line["unit_price"], line["amount"], line["charge_period"], line["charge_class"])
        for line in invoice.draft["lines"]
    ]


def charges() -> list[tuple[Any, ...]]:
    return list(Charge.objects.order_by("id").values_list("line_key", "usage_quantity", "unit_price"))


# 1


def test_01_issue_twice_same_document_one_number(billed: Path) -> None:
    first = documents()
    assert [row[:3] for row in first] == [
        ("AI-INFRA-2026-000001", "cv", money("10.00")), ("AI-INFRA-2026-000002", "nlp", money("212.06")),
    ]  # fmt: skip
    assert invoices_issue(month="2026-10", actor="somebody", now=NOVEMBER_OVER) == 0
    assert documents() == first


# 2


def test_02_crash_between_number_and_document_no_gap(transactional_db: None, tmp_path: Path) -> None:
    """A process takes the number from the counter and is killed with SIGKILL before the document is stored."""
    apply(tmp_path)
    ingest_allocations(allocation_record())
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    connections.close_all()
    pid = os.fork()
    if not pid:
        try:
            invoices.document_hash = lambda text: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,return-value]
            invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    assert documents()[0][0] is None
    assert invoices_issue(month="2026-10", actor="ops", now=OCTOBER_OVER) == 1
    assert documents()[0][0] == "AI-INFRA-2026-000001"


# 3


def test_03_replay_all_events_same_totals(used: Path) -> None:
    allocations = [allocation_record(), hold(2, "2026-10-10T00:00:00Z", "2026-10-10T01:00:00Z", namespace="cv")]
    tokens = token_record(input_tokens=1_000_000, cache_read_input_tokens=200_000, output_tokens=100_000)
    assert ingest_allocations(*reversed(allocations)).duplicates == 2
    assert ingest_tokens(tokens, tokens).duplicates == 2
    bill()
    assert [row[2] for row in documents()] == [money("10.00"), money("212.06")]
    assert (ingest_allocations(*allocations).duplicates, ingest_tokens(tokens).duplicates) == (2, 1)
    bill("2026-11", NOVEMBER_OVER)
    assert len(documents()) == 2, "a replay after the close is no late usage"


# 4


def test_04_price_change_is_billed_at_its_instant(db: None, tmp_path: Path) -> None:
    """One GPU from 00:30 to 02:00; from 01:15 on an hour costs 12: 0.75 h at 10 and 0.75 h at 12."""
    new = version("mid", "2026-10-10T01:15:00+00:00", "12.0000")
    apply(tmp_path, price_versions=[SET_UP["price_versions"][0], new])
    ingest_allocations(hold(1, "2026-10-10T00:30:00Z", "2026-10-10T02:00:00Z"))
    bill()
    assert [line[:3] for line in lines("2026-10")] == [("0.750000", "10.0000", "7.50"), ("0.750000", "12.0000", "9.00")]


@pytest.mark.parametrize(
    ("zone", "month", "held", "hours"),
    [
        ("Asia/Shanghai", "2028-02", ("2028-01-15T00:00:00Z", "2028-03-15T00:00:00Z"), 29 * 24),
        ("Asia/Shanghai", "2027-02", ("2027-01-15T00:00:00Z", "2027-03-15T00:00:00Z"), 28 * 24),
        ("Europe/Berlin", "2027-03", ("2027-02-15T00:00:00Z", "2027-04-15T00:00:00Z"), 31 * 24 - 1),
        ("Europe/Berlin", "2026-10", ("2026-09-15T00:00:00Z", "2026-11-15T00:00:00Z"), 31 * 24 + 1),
        ("Europe/Berlin", "2027-03", ("2027-03-27T23:00:00Z", "2027-03-28T22:00:00Z"), 23),
    ],
    ids=["leap February", "February", "spring", "autumn", "the day itself"],
)
def test_04_dst_day_and_leap_february(
    db: None, tmp_path: Path, zone: str, month: str, held: tuple[str, str], hours: int
) -> None:
    prices = [version("all", "2026-01-01T00:00:00+00:00", "10.0000")]
    apply(tmp_path, billing={**SET_UP["billing"], "zone": zone}, price_versions=prices)
    over = datetime(2028, 4, 1, tzinfo=UTC)
    ingest_allocations(hold(1, *held), now=over)
    period_close(month=month, actor="ops", now=over)
    assert [line[:3] for line in lines(month)] == [(f"{hours}.000000", "10.0000", f"{hours * 10}.00")]


# 5


def test_05_late_event_lands_in_the_open_period_at_the_old_price(db: None, tmp_path: Path) -> None:
    """12 GPU-hours of October, reported after its close, when an hour costs 11 already."""
    apply(tmp_path, price_versions=[SET_UP["price_versions"][0], version("new", "2026-11-01T00:00:00+08:00", "11.0000")])
    bill()
    ingest_allocations(hold(1, "2026-10-10T00:00:00Z", "2026-10-10T12:00:00Z"))
    bill("2026-11", NOVEMBER_OVER)
    assert lines("2026-11") == [("12.000000", "10.0000", "120.00", "2026-10", "Correction")]
    assert not Invoice.objects.filter(period__month="2026-10").exists()


# 6


def test_06_credits_never_exceed_the_original(billed: Path) -> None:
    number = str(documents()[1][0])
    credit(part("209.00"), number=number)
    with pytest.raises(NoteError, match=r"0\.63 is not between 0\.01 and the 0\.62 left"):
        draft(part("0.63"), number=number)
    credit(part("0.62"), number=number)
    with pytest.raises(NoteError, match="credited already"):
        draft(whole(), number=number)
    assert sum(note.total for note in Note.objects.all()) == money("-209.62")


# 7


def test_07_journal_nets_to_zero(billed: Path) -> None:
    credit(part("9.62"), number=str(documents()[1][0]))
    bill("2026-11", NOVEMBER_OVER)
    for month, expected in (("2026-10", {"AI-INFRA-2026-000001", "AI-INFRA-2026-000002"}),
                            ("2026-11", {"AI-INFRA-CN-2026-000001"})):  # fmt: skip
        net: dict[str, Decimal] = defaultdict(Decimal)
        for row in _journal(billed, month):
            net[row["invoice_number"]] += Decimal(row["debit"] or 0) - Decimal(row["credit"] or 0)
        assert net == dict.fromkeys(expected, Decimal(0))


def _journal(directory: Path, month: str) -> list[dict[str, str]]:
    call_command("export_journal", month, "--out", str(directory / f"{month}.csv"))
    return file_rows(directory / f"{month}.csv")


# 8


def test_08_focus_invoices_and_ledger_are_one_sum(billed: Path) -> None:
    """By document: what FOCUS bills by the hour, the invoice's total, what the journal debits and what was charged."""
    totals = {row[0]: row[2] for row in documents()}
    call_command("export_focus", "2026-10", "--out", str(billed))
    focus: dict[str, Decimal] = defaultdict(Decimal)
    for row in pq.read_table(billed / "focus-cost-and-usage-2026-10.parquet").to_pylist():
        focus[row["InvoiceId"]] += row["BilledCost"]
    debited: dict[str, Decimal] = defaultdict(Decimal)
    for row in _journal(billed, "2026-10"):
        debited[row["invoice_number"]] += Decimal(row["debit"] or 0)
    assert focus == debited == totals
    scale = {"GPU-Hours": 3_600_000_000, "1M Tokens": 1_000_000}
    charged: dict[str, Decimal] = defaultdict(Decimal)
    for charge in Charge.objects.all():
        charged[charge.team] += round_amount(
            Fraction(charge.usage_quantity) * Fraction(charge.unit_price) / scale[charge.unit]
        )
    assert charged == {"cv": money("10.00"), "nlp": money("212.06")}


# 9


def test_09_a_threshold_fires_once(used: Path) -> None:
    """212.06 spent of 400.00 is past 50 %; however often it is looked at, one alert."""
    wish = BudgetWish(period="month", amount=money("400.00"), forecast_thresholds=())
    budget_put(team=Team.objects.get(code="nlp"), wish=wish, actor="tests")
    now = datetime(2026, 10, 20, tzinfo=UTC)
    found = [[(item.basis, item.percent) for item in budgets_evaluate(now=now + timedelta(days=day))] for day in range(5)]
    assert [[item for item in day if item[0] == "actual"] for day in found] == [[("actual", 50)], [], [], [], []]


# 10


def test_10_no_forecast_before_three_days(db: None, tmp_path: Path) -> None:
    """10 GPU-hours a day from the first: nothing after two days, 31 x 100.00 after three."""
    apply(tmp_path)
    budget_put(team=Team.objects.get(code="nlp"), wish=BudgetWish(period="month", amount=money("1000")), actor="tests")
    for day in (1, 2, 3):
        ingest_allocations(hold(day, f"2026-10-0{day}T00:00:00Z", f"2026-10-0{day}T10:00:00Z"))
    assert [_forecast(datetime(2026, 9, 30, 16, tzinfo=UTC) + timedelta(days=days)) for days in (1, 2, 3)] == [
        None, None, money("3100.00"),
    ]  # fmt: skip


def _forecast(now: datetime) -> Decimal | None:
    days_store(now=now)
    standings_refresh(now=now)
    forecasts_update(now=now)
    return Budget.objects.get().standings.get().forecast_p50


# 11


def test_11_missing_mfu_never_changes_the_price(db: None, tmp_path: Path) -> None:
    """Two jobs of 8 GPUs for 9433 s each: of one nothing was measured, of the other only that no score could be had."""
    apply(tmp_path, efficiency_policies=[BANDS])
    ingest_allocations(allocation_record(1), allocation_record(2))
    factories.ingest_sample(
        pod_uid="uid-2", start="2026-10-10T00:00:00Z", end="2026-10-10T02:37:13Z", gpu_seconds="75464", mfu=None, hfu=None,
        coverage="0", reason="no counters",
    )  # fmt: skip
    bill()
    assert lines("2026-10") == [("41.924444", "10.0000", "419.24", "2026-10", None)]
    assert [(item.reason, item.multiplier) for item in EfficiencyVerdict.objects.all()] == [("neutral:missing", Decimal(1))]


# 12


def test_12_a_closed_period_refuses_writes(billed: Path) -> None:
    """By anybody, also with SQL; and a back-dated owner or price that would change it is refused as well."""
    for statement in (
        "INSERT INTO rating_charge SELECT * FROM rating_charge", "UPDATE rating_charge SET usage_quantity = 1",
        "DELETE FROM rating_charge", "UPDATE invoices_invoiceline SET amount = 0", "DELETE FROM invoices_invoice",
        "UPDATE invoices_billingperiod SET status = 'open', close_seq = NULL",
    ):
        with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    moved = {"cluster": "hq-1", "namespace": "nlp-train", "team": "cv", "valid_from": "2026-10-01"}
    dearer = version("dearer", "2026-10-15T00:00:00+08:00", "99.0000")
    tokens = {"consumer": "nlp-key-1", "source": "litellm-hq", "team": "cv", "valid_from": "2026-10-01"}
    for change in ({"ownership": [moved]}, {"price_versions": [dearer]}, {"consumers": [tokens]}):
        with pytest.raises(SetUpFileError, match="2026-10, which is closed"), transaction.atomic():
            apply(billed, **{**dict.fromkeys(SET_UP), **change})
    assert [row[2] for row in documents()] == [money("10.00"), money("212.06")]
    assert proofs_hold("2026-10")


@pytest.mark.postgresql("its guards do not reach ClickHouse")
def test_12_a_token_record_of_a_closed_period_refuses_a_change(billed: Path) -> None:
    with pytest.raises(DatabaseError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("UPDATE token_entry SET output_tokens = 0")


# 13


def test_13_tenant_a_cannot_read_tenant_b(billed: Path) -> None:
    """A viewer of cv, and a token of cv: what is nlp's does not exist, in any format."""
    client = factories.signed_in(factories.person("vera", "viewer", team="cv"))
    own, other = Invoice.objects.get(team__code="cv"), Invoice.objects.get(team__code="nlp")
    forms = ("", "download.pdf", "download.csv", "download.xlsx")
    assert {client.get(f"/invoices/{other.pk}/{form}").status_code for form in forms} == {404}
    assert {client.get(f"/invoices/{own.pk}/{form}").status_code for form in forms} == {200}
    assert [client.get(f"/teams/{code}/?month=2026-10").status_code for code in ("nlp", "cv")] == [404, 200]
    assert str(other.number) not in client.get("/invoices/").content.decode()
    reader, formats = program("invoices:read", "usage:read", team="cv"), ("", ".json", ".pdf", ".csv", ".xlsx")
    assert {reader.get(f"/api/v1/invoices/{other.number}{form}").status_code for form in formats} == {404}
    for endpoint in ("invoices", "charges"):
        found = reader.get(f"/api/v1/{endpoint}?month=2026-10").json()["results"]
        assert {item["team"] for item in found} == {"cv"}


# 14


def test_14_re_rating_reproduces_the_hash(billed: Path) -> None:
    """From stored usage, prices and owners alone; a year later, after late usage and another price list."""
    before = charges()
    apply(billed, price_versions=[SET_UP["price_versions"][0], version("new", "2026-11-01T00:00:00+08:00", "11.0000")])
    ingest_allocations(hold(3, "2026-10-11T00:00:00Z", "2026-10-11T01:00:00Z"))
    bill("2026-11", NOVEMBER_OVER)
    proofs = {proof.number: proof for proof in period_verify(month="2026-10")}
    for number, _, _, stored, document in documents()[:2]:
        assert proofs[number].recomputed == stored == sha256(document.encode()).hexdigest()
    assert charges()[: len(before)] == before


# What goes further


def proofs_of_the_page() -> dict[int, list[str]]:
    """Line of the checklist -> the node ids that the page names for it."""
    found: dict[int, list[str]] = defaultdict(list)
    for row in PAGE.read_text().splitlines():
        cells = row.split("|")
        if len(cells) > 3 and cells[1].strip().isdigit():
            found[int(cells[1])] += re.findall(r"`(tests/[^`]+)`", cells[3])
    return found


def test_every_line_has_its_test_here_and_every_test_that_the_page_names_is_collected() -> None:
    named = proofs_of_the_page()
    here = {int(name[5:7]) for name in globals() if re.match(r"test_\d\d_", name)}
    assert sorted(named) == sorted(here) == list(range(1, 15))
    wanted = sorted({node for nodes in named.values() for node in nodes})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:tests.services", *wanted],
        cwd=PROJECT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert all("::" in node for node in wanted), "each names a test, not a whole file"
