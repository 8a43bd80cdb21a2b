"""Whatever comes late and whatever turns out to have been otherwise: the account ends where a perfect world would."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from billing.closing.services.closing import period_close
from billing.corrections.services.corrections import LineCredit
from billing.corrections.services.proof import period_verify
from billing.corrections.services.retroactive import (
    retroactive_acknowledge,
    retroactive_approve,
    retroactive_propose,
)
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.services.invoices import invoices_issue
from billing.rating.assessment import rate_slice
from billing.rating.selectors import billed_slices, reference_data_known
from billing.usage.selectors import last_close_seq
from metering.intervals import billing_month
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import credit, people
from tests.hypothesis_profile import examples

pytestmark = pytest.mark.django_db
several = settings(
    max_examples=examples(25), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
ZONE = "Asia/Shanghai"
OCTOBER = billing_month("2026-10", ZONE)
MONTHS = ("2026-10", "2026-11", "2026-12")
OVER = {month: billing_month(month, ZONE).end + timedelta(minutes=5) for month in MONTHS}
TEAMS = ("nlp", "cv")
CONSUMERS = [
    *SET_UP["consumers"],
    {"source": "litellm-hq", "consumer": "cv-key", "team": "cv", "valid_from": "2026-01-01"},
]
PRICES = [{**SET_UP["price_versions"][0], "valid_from": "2026-01-01"}]

hours = st.integers(0, OCTOBER.microseconds // 3_600_000_000)
instants = st.integers(0, OCTOBER.microseconds).map(lambda us: OCTOBER.start + timedelta(microseconds=us))


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("set-up")


@contextmanager
def world(directory: Path) -> Iterator[None]:
    """An installation with people that vanishes after each example."""
    with transaction.atomic():
        people()
        apply(directory, consumers=CONSUMERS, price_versions=PRICES)
        yield
        transaction.set_rollback(True)


def at(hour: int) -> str:
    return (OCTOBER.start + timedelta(hours=hour)).isoformat()


@st.composite
def usage(draw: st.DrawFn, *, exact: bool) -> list[tuple[str, dict[str, Any]]]:
    """Records of October; `exact`: whole hours and ten thousands of tokens, whose price has no part of a cent."""
    records: list[tuple[str, dict[str, Any]]] = []
    for number in range(draw(st.integers(1, 4))):
        if exact:
            start, end = sorted(draw(st.lists(hours, min_size=2, max_size=2)))
            bounds = at(start), at(end)
        else:
            first, last = sorted(draw(st.lists(instants, min_size=2, max_size=2)))
            bounds = first.isoformat(), last.isoformat()
        record = allocation_record(
            number, namespace=draw(st.sampled_from(["nlp-train", "nlp-dev", "cv"])), quantity=draw(st.integers(1, 64)),
            started_at=bounds[0], ended_at=bounds[1], observed_until=None,
        )  # fmt: skip
        records.append(("gpu", record))
    for number in range(draw(st.integers(0, 3))):
        count = draw(st.integers(1, 10**6)) * (10_000 if exact else 1)
        hour = draw(st.integers(0, OCTOBER.microseconds // 3_600_000_000 - 1))
        consumer = draw(st.sampled_from(["nlp-key-1", "cv-key"]))
        record = token_record(
            number, time=at(hour), consumer=consumer, input_tokens=0, cache_read_input_tokens=0, output_tokens=count,
            reasoning_output_tokens=0,
        )  # fmt: skip
        records.append(("tokens", record))
    return records


@st.composite
def change(draw: st.DrawFn, number: int) -> dict[str, Any]:
    first, last = sorted(draw(st.lists(instants, min_size=2, max_size=2, unique=True)))
    kind = draw(st.sampled_from(["price", "namespace", "consumer"]))
    facts: dict[str, Any] = {
        "price": {
            "gpu": [{"accelerator": "NVIDIA-H800", "price": str(draw(st.integers(0, 200_000)) * Decimal("0.0001"))}],
            "tokens": [{"model": "llama-3-8b", "token_class": "output", "price": str(draw(st.integers(0, 20)))}],
        },
        "namespace": {"scope": "hq-1", "name": draw(st.sampled_from(["nlp-*", "nlp-train", "cv"])),
                      "team": draw(st.sampled_from(TEAMS))},
        "consumer": {"scope": "litellm-hq", "name": "nlp-key-1", "team": draw(st.sampled_from(TEAMS))},
    }  # fmt: skip
    return {"kind": kind, "fact": facts[kind], "valid_from": first, "valid_until": last, "name": f"c{number}"}


def report_usage(records: Sequence[tuple[str, dict[str, Any]]], now: datetime) -> None:
    for kind, record in records:
        (ingest_tokens if kind == "tokens" else ingest_allocations)(record, now=now)


def close(month: str) -> None:
    period_close(month=month, actor="ops", now=OVER[month])
    invoices_issue(month=month, actor="ops", now=OVER[month])


def bring_about(asked: dict[str, Any], now: datetime) -> None:
    proposed = retroactive_propose(**asked, reason="it was otherwise", evidence="", actor="sam", now=now)
    for team in TEAMS:
        retroactive_acknowledge(change_id=proposed.pk, team=team, actor="lea", now=now)
    for approver in ("fin", "head"):
        if retroactive_approve(change_id=proposed.pk, actor=approver, now=now).status == "approved":
            return


def accounts() -> dict[str, Decimal]:
    """What each team owes by all its documents."""
    documents = (*Invoice.objects.select_related("team"), *Note.objects.select_related("team"))
    assert all(document.number for document in documents)
    sums = dict.fromkeys(TEAMS, Decimal("0.00"))
    for document in documents:
        sums[document.team.code] += document.total
    return sums


def rated_again() -> dict[str, Decimal]:
    """What each team owes if every close had known what is known now."""
    sums = dict.fromkeys(TEAMS, Decimal("0.00"))
    last = last_close_seq()
    reference_data = reference_data_known(last + 1)
    for part in billed_slices(OCTOBER.start, datetime(2027, 1, 1, tzinfo=UTC), last):
        found = rate_slice(
            window=part.window, zone=ZONE, reference_data=reference_data,
            close_seq=part.close_seq, correction=part.correction,
        )  # fmt: skip
        for one in found.charges:
            sums[one.key.team] += one.amount
    return sums


def assert_proven() -> None:
    for month in BillingPeriod.objects.filter(status="closed").values_list("month", flat=True):
        assert all(proof.holds for proof in period_verify(month=month))


@several
@given(usage(exact=False), st.data())
def test_invoices_and_corrections_are_the_invoice_rated_again(
    directory: Path, records: list[tuple[str, dict[str, Any]]], data: st.DataObject
) -> None:
    with world(directory):
        number = 0
        left = list(records)
        for month in MONTHS:
            cut = data.draw(st.integers(0, len(left)))
            report_usage(left[:cut], OVER[month])
            left = left[cut:]
            close(month)
            for _ in range(data.draw(st.integers(0, 2))):
                number += 1
                bring_about(data.draw(change(number)), OVER[month])
        assert accounts() == rated_again()
        assert_proven()


@several
@given(usage(exact=True), st.lists(change(0), max_size=2), st.data())
def test_any_order_of_late_arrivals_and_changes_gives_the_same_account(
    directory: Path, records: list[tuple[str, dict[str, Any]]], changes: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Changes at whole hours and of whole prices, so that no cent depends on which lines are rounded by themselves."""
    for number, asked in enumerate(changes):
        asked["name"] = f"c{number}"
        first = asked["valid_from"].replace(minute=0, second=0, microsecond=0)
        asked |= {"valid_from": first, "valid_until": first + timedelta(hours=data.draw(st.integers(1, 100)))}
        assume(asked["valid_until"] <= OCTOBER.end and first >= OCTOBER.start)
        if asked["kind"] == "price":
            asked["fact"]["gpu"][0]["price"] = str(data.draw(st.integers(0, 20)))
    with world(directory):
        report_usage(records, OVER["2026-10"])
        for month in MONTHS:
            close(month)
            if month == "2026-10":
                for asked in changes:
                    bring_about(asked, OVER[month])
        at_once = accounts()
    with world(directory):
        left = list(data.draw(st.permutations(records)))
        waiting = list(changes)
        for month in MONTHS:
            cut = len(left) if month == MONTHS[-1] else data.draw(st.integers(0, len(left)))
            report_usage(left[:cut], OVER[month])
            left = left[cut:]
            close(month)
            many = len(waiting) if month == MONTHS[-1] else data.draw(st.integers(0, len(waiting)))
            for asked in waiting[:many]:
                bring_about(asked, OVER[month])
            waiting = waiting[many:]
        assert accounts() == at_once
        assert_proven()


@several
@given(st.lists(st.tuples(st.sampled_from(["part", "whole", "price"]), st.integers(1, 10**6)), min_size=1, max_size=5))
def test_no_sequence_of_credits_takes_more_than_was_charged(
    directory: Path, steps: list[tuple[str, int]]
) -> None:
    """100 GPU-hours at 10; whatever is asked for, what is issued never makes the team a creditor."""
    with world(directory):
        held = allocation_record(quantity=10, started_at=at(0), ended_at=at(10), observed_until=None)
        report_usage([("gpu", held)], OVER["2026-10"])
        close("2026-10")
        number = str(Invoice.objects.get().number)
        for kind, size in steps:
            asked = {
                "part": LineCredit(1, amount=Decimal(size) / 100),
                "whole": LineCredit(1),
                "price": LineCredit(1, rebill_price=Decimal(size) / 10_000),
            }[kind]
            before = accounts()["nlp"]
            try:
                with transaction.atomic():
                    notes = credit(asked, number=number, code="price")
            except ValueError:
                assert accounts()["nlp"] == before
                continue
            assert accounts()["nlp"] >= 0
            if kind == "price":
                number = str(next(note.number for note in notes if note.kind == "rebill"))
        assert_proven()


