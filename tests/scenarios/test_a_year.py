"""A year of three teams in Berlin, told in dates; every document's numbers are computed by hand.

1 GPU costs 10 an hour, from 16 April 12. January has 744 hours, leap February 696, March 743 and October 745 (summer
time), April, June, September and November 720, the others 744.
"""

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from billing.closing.services.closing import period_close
from billing.corrections.services.disputes import Claim, dispute_open, dispute_uphold
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of, state_of
from billing.invoices.services.invoices import invoices_issue
from metering.intervals import billing_month
from tests.factories import allocation_record, apply, ingest_allocations, person
from tests.factories.corrections import issue, people, proofs_hold
from tests.scenarios.totals import documented, exported, posted

pytestmark = pytest.mark.django_db
BERLIN = ZoneInfo("Europe/Berlin")
MONTHS = [f"2028-{number:02d}" for number in range(1, 13)]
TEAMS = [{"code": code, "name": code.title(), "cost_center": f"CC-{code}"} for code in ("alpha", "beta", "gamma")]
PRICES = [
    {"name": name, "valid_from": start, "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": price}]}
    for name, start, price in (("2028", "2028-01-01", "10.0000"), ("spring", "2028-04-16", "12.0000"))
]
OWNERS = [
    {"cluster": "hq-1", "namespace": "a", "team": "alpha", "valid_from": "2028-01-01"},
    {"cluster": "hq-1", "namespace": "b", "team": "beta", "valid_from": "2028-01-01"},
    {"cluster": "hq-1", "namespace": "old", "team": "gamma", "valid_from": "2028-01-01"},
]
MOVED = [*OWNERS, {"cluster": "hq-1", "namespace": "b", "team": "alpha", "valid_from": "2028-05-11"}]


def local(day: str) -> datetime:
    return datetime.fromisoformat(day).replace(tzinfo=BERLIN)


def over(month: str) -> datetime:
    return billing_month(month, "Europe/Berlin").end + timedelta(hours=1)


class Year:
    """Reports holds and closes months; counts allocations, so that each has its own name."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.number = directory, 0

    def set_up(self, **changed: Any) -> None:
        billing = {"currency": "EUR", "zone": "Europe/Berlin", "issuer": "AI", "review": "none"}
        facts = {"ownership": OWNERS, "price_versions": PRICES, **changed}
        apply(self.directory, billing=billing, teams=TEAMS, consumers=None, platform=None, **facts)

    def hold(self, namespace: str, gpus: int, start: str, end: str, now: datetime) -> None:
        self.number += 1
        record = allocation_record(
            self.number, namespace=namespace, quantity=gpus, started_at=local(start).isoformat(),
            ended_at=local(end).isoformat(), observed_until=None,
        )  # fmt: skip
        assert ingest_allocations(record, now=now).accepted == 1

    def close(self, month: str) -> None:
        """The GPU that alpha holds all year, then the close and the issue of the month."""
        window = billing_month(month, "Europe/Berlin").in_zone("Europe/Berlin")
        self.hold("a", 1, *(bound.date().isoformat() for bound in window), now=over(month))
        period_close(month=month, actor="ops", now=over(month))
        invoices_issue(month=month, actor="ops", now=over(month))


def lines(month: str, team: str) -> list[tuple[str, ...]]:
    """Namespace, price list, quantity and amount of every line, and whether it corrects."""
    invoice = Invoice.objects.get(period__month=month, team__code=team)
    return [
        (row["namespace"], row["price_version"], row["quantity"].removesuffix(".000000"), row["amount"],
         row["charge_class"] or "")
        for row in document_of(invoice)["lines"]
    ]  # fmt: skip


def noted() -> dict[str, tuple[str, str, str]]:
    """Team, month and total of every note, by number."""
    return {
        str(note.number): (note.team.code, document_of(note)["period"]["month"], str(note.total))
        for note in Note.objects.order_by("id")
    }


def test_a_year(tmp_path: Path) -> None:
    people()
    year = Year(tmp_path)
    year.set_up()
    person("ada", "lead", team="alpha")

    year.close("2028-01")
    year.close("2028-02")
    year.close("2028-03")
    assert lines("2028-01", "alpha") == [("a", "2028", "744", "7440.00", "")]
    assert lines("2028-02", "alpha") == [("a", "2028", "696", "6960.00", "")]
    assert lines("2028-03", "alpha") == [("a", "2028", "743", "7430.00", "")]

    # the price changes in the middle of April: 15 days at each
    year.close("2028-04")
    assert lines("2028-04", "alpha") == [("a", "2028", "360", "3600.00", ""), ("a", "spring", "360", "4320.00", "")]

    # namespace b moves from beta to alpha on 11 May: 10 and 21 days of 2 GPUs
    year.set_up(ownership=MOVED)
    year.hold("b", 2, "2028-05-01", "2028-06-01", over("2028-05"))
    year.close("2028-05")
    assert lines("2028-05", "beta") == [("b", "spring", "480", "5760.00", "")]
    assert lines("2028-05", "alpha") == [("a", "spring", "744", "8928.00", ""), ("b", "spring", "1008", "12096.00", "")]

    # gamma is closed down on 11 June: its last ten days are billed, and then nothing any more
    year.hold("old", 1, "2028-06-01", "2028-06-11", over("2028-06"))
    year.close("2028-06")
    assert lines("2028-06", "gamma") == [("old", "spring", "240", "2880.00", "")]
    assert lines("2028-06", "alpha") == [("a", "spring", "720", "8640.00", "")]

    # in July it turns out that alpha held 4 GPUs on 26 March, the day of 23 hours
    year.hold("a", 4, "2028-03-26", "2028-03-27", over("2028-06"))
    year.close("2028-07")
    assert lines("2028-07", "alpha") == [("a", "spring", "744", "8928.00", ""), ("a", "2028", "92", "920.00", "Correction")]

    # alpha disputes 500 of July, is right, and gets a credit note in August
    july = str(Invoice.objects.get(period__month="2028-07").number)
    claim = Claim(july, [1], "sla", "a node was lost", "INC-3", Decimal("500.00"))
    dispute = dispute_open(claim=claim, actor="ada", now=local("2028-08-03"))
    assert state_of(Invoice.objects.get(number=july)) == "disputed"
    upheld = dispute_uphold(dispute_id=dispute.pk, actor="sam", now=local("2028-08-09"), text="it was")
    assert upheld.correction is not None
    issue(upheld.correction, "lea", local("2028-08-10"))
    assert noted() == {"AI-CN-2028-000001": ("alpha", "2028-08", "-500.00")}

    year.close("2028-08")
    year.close("2028-09")
    assert lines("2028-08", "alpha") == [("a", "spring", "744", "8928.00", "")]
    assert lines("2028-09", "alpha") == [("a", "spring", "720", "8640.00", "")]

    # in October somebody finds that August should have cost 11: 744 x 11 = 8184
    change = retroactive_propose(
        kind="price", name="august", fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": "11"}]}, evidence="minutes",
        valid_from=local("2028-08-01"), valid_until=local("2028-09-01"), reason="agreed at 11", actor="sam",
        now=local("2028-10-12"),
    )  # fmt: skip
    retroactive_approve(change_id=change.pk, actor="fin", now=local("2028-10-13"))
    assert noted() == {
        "AI-CN-2028-000001": ("alpha", "2028-08", "-500.00"),
        "AI-CN-2028-000002": ("alpha", "2028-10", "-8928.00"),
        "AI-RB-2028-000001": ("alpha", "2028-10", "8184.00"),
    }

    year.close("2028-10")
    year.close("2028-11")
    year.close("2028-12")
    assert lines("2028-10", "alpha") == [("a", "spring", "745", "8940.00", "")]
    assert lines("2028-11", "alpha") == [("a", "spring", "720", "8640.00", "")]
    assert lines("2028-12", "alpha") == [("a", "spring", "744", "8928.00", "")]

    assert accounts() == {
        # invoices of January to December, then the credit of July, the credit and the rebill of August
        "alpha": 7440 + 6960 + 7430 + 7920 + 21024 + 8640 + 9848 + 8928 + 8640 + 8940 + 8640 + 8928 - 500 - 8928 + 8184,
        "beta": 5760,
        "gamma": 2880,
    }
    assert all(proofs_hold(month) for month in MONTHS)
    for month in MONTHS:
        assert posted(month, tmp_path) == exported(month, tmp_path) == documented(month)


def accounts() -> dict[str, Decimal]:
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for document in (*Invoice.objects.select_related("team"), *Note.objects.select_related("team")):
        sums[document.team.code] += document.total
    return dict(sums)
