"""A year in zones of half and three quarter hours and in currencies of 0 and 2 decimals, added up in fractions by hand.

Usage crosses midnights that cut an hour, prices and owners change within a month, usage comes late, a month is priced
again afterwards, and one team has so many consumers that its tokens are gathered. Fractions, invoices and notes, journals,
FOCUS and the explorer say the same.
"""

from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.http import QueryDict

from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.explorer.query import query_of
from billing.explorer.selectors import Explorer
from billing.invoices.annex import annex_of
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of
from metering.intervals import billing_month
from pricing.money import amounts_in, round_to
from tests.factories import allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import bill, people, proofs_hold
from tests.scenarios.totals import documented, exported, posted

pytestmark = pytest.mark.django_db
MONTHS = [f"2028-{number:02d}" for number in range(1, 13)]
GPU, MODEL = "NVIDIA-H800", "llama-3-8b"
PRICES = {  # GPU-hour, output, input
    "2028": ("10.0000", "8.0000", "2.0000"), "spring": ("12.3457", "7.5000", "1.2500"), "august": ("11.1111", "7.7777", "3"),
}  # fmt: skip
SPRING, MOVES = "2028-04-16T00:30", "2028-05-11T00:00"
TEAMS = ("alpha", "beta", "gamma")


def price_list(name: str, start: str) -> dict[str, Any]:
    gpu, output, tokens = PRICES[name]
    return {
        "name": name, "valid_from": start, "gpu": [{"accelerator": GPU, "price_per_gpu_hour": gpu}],
        "tokens": [{"model": MODEL, "input": tokens, "output": output}],
    }  # fmt: skip


class Year:
    """Reports usage, and adds up what each line should have: one sum per close, month of use, owner and price."""

    def __init__(self, zone: str, currency: str, places: int, directory: Path) -> None:
        self.zone, self.currency, self.places, self.directory = zone, currency, places, directory
        self.random, self.number = Random(zone), 0
        self.sums: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)

    def local(self, text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(self.zone))

    def set_up(self) -> None:
        since = self.local("2028-01-01T00:00").isoformat()
        moves = self.local(MOVES).isoformat()
        owners = [("a", "alpha", since), ("b", "alpha", since), ("b", "gamma", moves)]
        apply(
            self.directory,
            billing={"currency": self.currency, "zone": self.zone, "issuer": "AI", "review": "none",
                     "gather_consumers_above": 5},
            teams=[{"code": code, "name": code.title(), "cost_center": f"CC-{code}"} for code in TEAMS],
            ownership=[{"cluster": "hq-1", "namespace": name, "team": team, "valid_from": at} for name, team, at in owners],
            consumers=[
                {"source": "litellm-hq", "consumer": f"{team}-*", "team": team, "valid_from": since}
                for team in ("beta", "gamma")
            ],
            platform=None,
            price_versions=[price_list("2028", since), price_list("spring", self.local(SPRING).isoformat())],
        )  # fmt: skip

    def month_of(self, at: datetime) -> str:
        return f"{at.astimezone(ZoneInfo(self.zone)):%Y-%m}"

    def price(self, at: datetime) -> str:
        return "2028" if at < self.local(SPRING) else "spring"

    def hold(self, namespace: str, gpus: int, start: datetime, end: datetime, close: str, now: datetime) -> None:
        """Report devices, and count their seconds between midnights, prices and owners."""
        self.number += 1
        record = allocation_record(
            self.number, namespace=namespace, quantity=gpus, started_at=start.isoformat(), ended_at=end.isoformat(),
            observed_until=None, accelerator=GPU,
        )  # fmt: skip
        assert ingest_allocations(record, now=now).accepted == 1
        cuts = {start, end, self.local(SPRING), self.local(MOVES)}
        cuts |= {billing_month(month, self.zone).start for month in MONTHS}
        bounds = sorted(at for at in cuts if start <= at <= end)
        for first, last in pairwise(bounds):
            team = "gamma" if namespace == "b" and first >= self.local(MOVES) else "alpha"
            key = (close, self.month_of(first), team, namespace, "gpu", self.price(first))
            self.sums[key] += Fraction((last - first) // timedelta(microseconds=1), 3_600_000_000) * gpus

    def use(self, consumer: str, at: datetime, close: str, now: datetime) -> None:
        """Report a request, and count its tokens: those of beta together."""
        self.number += 1
        tokens, output = self.random.randrange(1, 3_000_000), self.random.randrange(1, 900_000)
        record = token_record(
            self.number, consumer=consumer, time=at.isoformat(), input_tokens=tokens, cache_read_input_tokens=0,
            output_tokens=output, reasoning_output_tokens=0,
        )  # fmt: skip
        assert ingest_tokens(record, now=now).accepted == 1
        team = consumer.partition("-")[0]
        for place, count in (("input", tokens), ("output", output)):
            key = (close, self.month_of(at), team, "" if team == "beta" else consumer, place, self.price(at))
            self.sums[key] += Fraction(count, 10**6)

    def amount(self, key: tuple[str, ...], price: str | None = None) -> Decimal:
        of = PRICES[price or key[5]][("gpu", "output", "input").index(key[4])]
        return round_to(self.sums[key] * Fraction(of), self.places)

    def price_august_again(self) -> None:
        """In December other prices of August are agreed: each of its lines is credited and billed again."""
        gpu, output, tokens = PRICES["august"]
        by_class = {"output": output, "input": tokens}
        prices = [{"model": MODEL, "token_class": name, "price": price} for name, price in by_class.items()]
        change = retroactive_propose(
            kind="price", name="august", fact={"gpu": [{"accelerator": GPU, "price": gpu}], "tokens": prices},
            valid_from=self.local("2028-08-01T00:00"), valid_until=self.local("2028-09-01T00:00"), reason="agreed",
            evidence="minutes", actor="sam", now=self.local("2028-12-20T12:00"),
        )  # fmt: skip
        retroactive_approve(change_id=change.pk, actor="fin", now=self.local("2028-12-20T13:00"))


@pytest.fixture(params=[("Asia/Kolkata", "JPY", 0), ("America/St_Johns", "CNY", 2), ("Asia/Kathmandu", "USD", 2)])
def year(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Year]:

    yield Year(*request.param, tmp_path)
    amounts_in("CNY")


def test_fractions_documents_journals_focus_and_the_explorer_agree(year: Year) -> None:
    people()
    year.set_up()
    for number, month in enumerate(MONTHS):
        window = billing_month(month, year.zone)
        over = window.end + timedelta(minutes=20)
        second = timedelta(seconds=1)
        # A job that began before midnight, where the month before is closed by then; one up to the last microsecond.
        year.hold("a", 3, window.start - (timedelta(minutes=37, seconds=17) if number else second * 0),
                  window.start + timedelta(days=20, hours=3, microseconds=333_333), month, over)  # fmt: skip
        year.hold("b", 1, window.start + timedelta(hours=1, minutes=7), window.end, month, over)
        for consumer in (*(f"beta-{at}" for at in range(7)), "gamma-1", "gamma-2"):
            middle = window.start + timedelta(days=year.random.randrange(1, 28), seconds=year.random.randrange(86400))
            for at in (window.start, middle, window.end - timedelta(microseconds=1)):
                year.use(consumer, at, month, over)
        if number == 6:  # usage of March is known in July, of a gathered team
            year.use("beta-3", year.local("2028-03-26T02:45"), month, over)
            year.use("gamma-2", year.local("2028-03-31T23:59:59.999999"), month, over)
        if number == 11:
            year.price_august_again()
        bill(month, over)

    expected: dict[str, Decimal] = defaultdict(Decimal)
    for key in list(year.sums):
        expected[key[2]] += year.amount(key, "august" if key[1] == "2028-08" else None)
    assert sums() == expected
    assert proofs_hold(*MONTHS)

    for invoice in Invoice.objects.filter(team__code="beta"):
        shared: dict[int, Decimal] = defaultdict(Decimal)
        for part in annex_of(invoice):
            shared[part.position] += part.amount
        assert shared == {line["position"]: Decimal(line["amount"]) for line in document_of(invoice)["lines"]}
    for month in MONTHS:
        assert posted(month, year.directory) == exported(month, year.directory) == documented(month)
    found = Explorer(frozenset(TEAMS), year.local("2029-01-02T12:00"), year.zone).explore(
        query_of(QueryDict("from=2028-01-01&to=2028-12-31&by=team"), date(2029, 1, 2), 1)
    )
    assert {group.names[0]: group.total for group in found.groups} == expected


def sums() -> dict[str, Decimal]:
    """Every document's total, by team."""
    found: dict[str, Decimal] = defaultdict(Decimal)
    for document in (*Invoice.objects.select_related("team"), *Note.objects.select_related("team")):
        found[document.team.code] += document.total
    return found
