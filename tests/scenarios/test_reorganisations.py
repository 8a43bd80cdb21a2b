"""Fourteen months of a group that is reorganised within months: fractions by hand, invoices and notes, journals and FOCUS
agree by cost centre and date, and so do the budgets of its groups.

alpha holds devices at 12.3400 an hour across each instant at which it moves. Usage of March comes late, in April; a line of
July is credited in August.
"""

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest

from billing.budgets.models import Budget
from billing.budgets.services import BudgetWish, budget_put, standings_refresh
from billing.corrections.services.corrections import (
    LineCredit,
    Wanted,
    correction_approve,
    correction_issue,
    credit_note_draft,
)
from billing.exports.journal import Chart
from billing.exports.services.journal import journal_export
from billing.invoices.models import Invoice
from billing.tenancy.models import Team
from metering.intervals import billing_month
from tests.factories import allocation_record, apply, ingest_allocations
from tests.factories.corrections import bill, people, proofs_hold
from tests.scenarios.totals import documented, exported

pytestmark = pytest.mark.django_db
ZONE = "Asia/Shanghai"
MONTHS = [*(f"2028-{number:02d}" for number in range(1, 13)), "2029-01", "2029-02"]
PRICE = Fraction("12.34")
MOVES = {  # from then on: cost centre and group
    "2028-01-01T00:00": ("CC-A", "research"), "2028-03-11T00:00": ("CC-B", "products"),
    "2028-07-17T05:00": ("CC-C", "research"), "2028-12-31T12:00": ("CC-A", "products"),
}  # fmt: skip
Sums = dict[tuple[str, str], Fraction]


def local(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(ZONE))


def of_time(at: datetime) -> tuple[str, str]:
    """Cost centre and group at an instant."""
    return [facts for since, facts in MOVES.items() if local(since) <= at][-1]


class Months:
    """Reports usage, and adds up what each month's documents charge to each cost centre, and the groups spend."""

    def __init__(self) -> None:
        self.centers: Sums = defaultdict(Fraction)
        self.groups: Sums = defaultdict(Fraction)
        self.pods = 0

    def hold(self, start: datetime, hours: int, gpus: int, *, billed: str = "", now: datetime) -> None:
        """Report devices for whole hours; `billed`: the month that bills them, by default that of each hour."""
        self.pods += 1
        end = start + timedelta(hours=hours)
        record = allocation_record(
            self.pods, namespace="a", quantity=gpus, started_at=start.isoformat(), ended_at=end.isoformat(),
            observed_until=end.isoformat(),
        )  # fmt: skip
        assert ingest_allocations(record, now=now).accepted == 1
        for hour in range(hours):
            self.charge(start + timedelta(hours=hour), gpus * PRICE, billed)

    def charge(self, at: datetime, amount: Fraction, billed: str = "") -> None:
        center, group = of_time(at)
        self.centers[billed or f"{at:%Y-%m}", center] += amount
        self.groups[billed or f"{at:%Y-%m}", group] += amount

    def of(self, sums: Sums, month: str) -> dict[str, Decimal]:
        """Return the amounts of a month, which are whole cents."""
        assert all((amount * 100).denominator == 1 for amount in sums.values())
        found = {name: Decimal(int(amount * 100)).scaleb(-2) for (of, name), amount in sums.items() if of == month}
        return {name: amount for name, amount in found.items() if amount}


def set_up(directory: Path) -> None:
    since = local("2028-01-01T00:00").isoformat()
    dated = [
        [{"value": facts[place], "valid_from": local(at).isoformat()} for at, facts in MOVES.items()] for place in (0, 1)
    ]
    apply(
        directory,
        billing={"currency": "CNY", "zone": ZONE, "issuer": "AI", "review": "none"},
        teams=[{"code": "alpha", "name": "Alpha", "cost_center": dated[0], "parent": dated[1]}],
        ownership=[{"cluster": "hq-1", "namespace": "a", "team": "alpha", "valid_from": since}],
        consumers=None, platform=None,
        price_versions=[{
            "name": "2028", "valid_from": since, "tokens": [{"model": "llama-3-8b", "input": "2.0000", "output": "8.0000"}],
            "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "12.3400"}],
        }],
    )  # fmt: skip
    for code in ("research", "products"):
        wish = BudgetWish(period="month", amount=Decimal("100000.00"))
        budget_put(team=Team.objects.get(code=code), wish=wish, actor="tests", approved=True)


def group_spending(now: datetime) -> dict[str, Decimal]:
    standings_refresh(now=now)
    return {
        budget.team.code: row.spent for budget in Budget.objects.all()
        if (row := budget.standings.get(start__lte=now, end__gt=now)).spent
    }  # fmt: skip


def posted_to_centers(month: str, directory: Path) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = defaultdict(Decimal)
    done = journal_export(month=month, path=directory / "journal.csv", chart=Chart())
    assert done.debit == done.credit
    for journal in done.journals:
        for entry in journal.entries:
            if entry.account == Chart().consumer_account:
                sums[entry.cost_center] += (entry.debit or 0) - (entry.credit or 0)
    return {center: amount for center, amount in sums.items() if amount}


def focus_by_center(month: str, directory: Path) -> dict[str, Decimal]:
    """Sum of BilledCost by the cost centre of the hour of the charge."""
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for row in pq.read_table(directory / f"focus-cost-and-usage-{month}.parquet").to_pylist():
        sums[of_time(row["ChargePeriodStart"])[0]] += row["BilledCost"]
    return {center: amount for center, amount in sums.items() if amount}


def credit_line_of_july(year: Months) -> None:
    """In August line 1 of July's invoice is credited in whole, at the cost centres of its hours."""
    invoice = Invoice.objects.get(period__month="2028-07")
    now = local("2028-08-15T09:00")
    wanted = Wanted("price", "agreed", "minutes", "sam", now)
    correction = credit_note_draft(number=str(invoice.number), credits=[LineCredit(1)], wanted=wanted)
    correction_approve(correction_id=correction.pk, actor="fin", now=now)
    correction_issue(correction_id=correction.pk, actor="fin", now=now)
    for (month, center), amount in list(year.centers.items()):
        if month == "2028-07":
            year.centers["2028-08", center] -= amount


def test_fourteen_months_agree_by_cost_centre_and_date(tmp_path: Path) -> None:
    people()
    set_up(tmp_path)
    year = Months()
    for number, month in enumerate(MONTHS):
        over = billing_month(month, ZONE).end + timedelta(hours=8)
        gpus = 1 + number % 5
        year.hold(local(f"{month}-10T20:00"), 10, gpus, now=over)
        year.hold(local(f"{month}-16T22:00"), 11, gpus + 1, now=over)
        last = billing_month(month, ZONE).end - timedelta(hours=18)
        year.hold(last.astimezone(ZoneInfo(ZONE)), 22, 2, now=over)
        if month == "2028-04":
            year.hold(local("2028-03-09T10:00"), 3, 2, billed=month, now=over)
            year.hold(local("2028-03-12T10:00"), 4, 2, billed=month, now=over)
        assert group_spending(over - timedelta(hours=9)) == year.of(year.groups, month), month
        if month == "2028-08":
            credit_line_of_july(year)
        bill(month, over)
    for month in MONTHS:
        expected = year.of(year.centers, month)
        assert posted_to_centers(month, tmp_path) == expected, month
        documents = documented(month)
        assert sum(documents.values()) == sum(expected.values()), month
        assert exported(month, tmp_path) == documents, month
        assert focus_by_center(month, tmp_path) == expected, month
    split = [month for month in MONTHS if len(year.of(year.centers, month)) > 1]
    assert split == ["2028-03", "2028-04", "2028-07", "2028-08", "2028-12"]
    assert all(proofs_hold(month) for month in ("2028-03", "2028-04", "2028-07", "2028-12"))
