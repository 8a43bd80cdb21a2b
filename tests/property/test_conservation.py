"""The same truth gives the same invoices however it is reported, and no change of prices or owners creates or loses
usage."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import Invoice
from billing.invoices.services.invoices import invoices_issue
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.models import Charge as ChargeRow
from billing.usage.services import rollups_fold
from metering.intervals import billing_month
from pricing.money import EXACT
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.histories import world
from tests.hypothesis_profile import examples

pytestmark = pytest.mark.django_db

with_database = settings(
    max_examples=examples(25), deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip

OCTOBER = billing_month("2026-10", "Asia/Shanghai")
OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
Record = dict[str, Any]
Story = Sequence[tuple[str, Sequence[Record]]]
"""Batches in the order of their arrival: ("tokens" or "gpu", records)."""

inside = st.integers(0, OCTOBER.microseconds - 1).map(lambda us: OCTOBER.start + us * MICROSECOND)
around = st.integers(-3 * 86_400 * 10**6, OCTOBER.microseconds + 3 * 86_400 * 10**6).map(
    lambda us: OCTOBER.start + us * MICROSECOND
)
hourly = st.integers(0, OCTOBER.microseconds // 3_600_000_000 - 1).map(lambda hour: OCTOBER.start + timedelta(hours=hour))
changes = st.lists(st.one_of(inside, hourly), max_size=3, unique=True).map(sorted)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("set-up")


def report_usage(story: Story, fold: Callable[[], bool] = lambda: False) -> None:
    for kind, records in story:
        outcome = (ingest_tokens if kind == "tokens" else ingest_allocations)(*records, now=OVER)
        assert (outcome.conflicts, outcome.refusals) == (0, [])
        if fold():
            rollups_fold()


def documents() -> list[str]:
    """The texts of all invoices of October, closed and issued now, each proven from its usage."""
    period_close(month="2026-10", actor="ops", now=OVER)
    invoices_issue(month="2026-10", actor="ops", now=OVER)
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    return list(Invoice.objects.order_by("sequence").values_list("document", flat=True))


def reported(directory: Path, story: Story, fold: Callable[[], bool] = lambda: False, **set_up: Any) -> list[str]:
    with world():
        apply(directory, **set_up)
        report_usage(story, fold)
        return documents()


@st.composite
def tokens(draw: st.DrawFn, when: st.SearchStrategy[datetime] = around) -> list[Record]:
    count = draw(st.integers(0, 6))
    records = []
    for number in range(count):
        cached, created, fresh = (draw(st.integers(0, 10 ** draw(st.sampled_from([1, 4, 9])))) for _ in range(3))
        output = draw(st.integers(0, 10**7))
        records.append(
            token_record(
                number, time=draw(when).isoformat(), consumer=draw(st.sampled_from(["nlp-key-1", "cv-key"])),
                cache_read_input_tokens=cached, cache_creation_input_tokens=created,
                input_tokens=cached + created + fresh, output_tokens=output,
                reasoning_output_tokens=draw(st.integers(0, output)),
            )
        )  # fmt: skip
    return records


@st.composite
def hold(draw: st.DrawFn, number: int) -> Record:
    """An ended allocation; any length, also none, and also across the bounds of the month."""
    start, end = sorted([draw(around), draw(around)])
    return allocation_record(
        number, namespace=draw(st.sampled_from(["nlp-train", "nlp-dev", "cv", "serving"])),
        quantity=draw(st.integers(1, 1000)), device_fraction=draw(st.sampled_from(["1", "0.5", "0.142857142857"])),
        started_at=start.isoformat(), ended_at=end.isoformat(), observed_until=end.isoformat(),
    )  # fmt: skip


@st.composite
def holds(draw: st.DrawFn) -> list[Record]:
    return [draw(hold(number)) for number in range(draw(st.integers(0, 4)))]


@st.composite
def retold(draw: st.DrawFn, token_records: list[Record], gpu_records: list[Record]) -> Story:
    """The same truth in another order, cut into other batches, repeated, with observations before each end."""
    items = [("tokens", record) for record in token_records]
    for record in gpu_records:
        items.append(("gpu", record))
        start, end = (datetime.fromisoformat(record[name]) for name in ("started_at", "ended_at"))
        for part in draw(st.lists(st.integers(0, 100), max_size=3)):
            seen = (start + (end - start) * part // 100).isoformat()
            items.append(("gpu", {**record, "ended_at": None, "end_reason": None, "observed_until": seen}))
    if items:
        items += draw(st.lists(st.sampled_from(items), max_size=8))
    story: list[tuple[str, list[Record]]] = []
    for kind, record in draw(st.permutations(items)):
        if story and story[-1][0] == kind and draw(st.booleans()):
            story[-1][1].append(record)
        else:
            story.append((kind, [record]))
    return story


CONSUMERS = [
    *SET_UP["consumers"],
    {"source": "litellm-hq", "consumer": "cv-key", "team": "cv", "valid_from": "2026-01-01"},
]
PRICED_SINCE_JANUARY = [{**SET_UP["price_versions"][0], "valid_from": "2026-01-01"}]
PLAIN = {"consumers": CONSUMERS, "price_versions": PRICED_SINCE_JANUARY}


@with_database
@given(tokens(), holds(), st.data())
def test_any_split_order_and_repetition_of_the_same_truth_gives_the_same_invoices(
    directory: Path, token_records: list[Record], gpu_records: list[Record], data: st.DataObject
) -> None:
    plain: Story = [("tokens", token_records), ("gpu", gpu_records)]
    again = data.draw(retold(token_records, gpu_records))
    fold = lambda: data.draw(st.booleans())  # noqa: E731
    assert reported(directory, again, fold, **PLAIN) == reported(directory, plain, **PLAIN)


@with_database
@given(hold(1), st.lists(around, max_size=4), st.lists(st.one_of(inside, hourly), max_size=2, unique=True), st.data())
def test_an_allocation_in_one_row_or_cut_into_consecutive_rows_gives_the_same_invoices(
    directory: Path, whole: Record, anywhere: list[datetime], moments: list[datetime], data: st.DataObject
) -> None:
    start, end = (datetime.fromisoformat(whole[name]) for name in ("started_at", "ended_at"))
    set_up = {**PLAIN, **price_changes(moments[:1]), **owner_changes(moments[1:])}
    bounds = {start, end, *(at for at in [*anywhere, *moments, OCTOBER.start, OCTOBER.end] if start < at < end)}
    kept = sorted(at for at in bounds if at in (start, end) or data.draw(st.booleans()))
    rows = [
        {**whole, "allocation_id": f"part-{number}", "started_at": lo.isoformat(), "ended_at": hi.isoformat(),
         "observed_until": hi.isoformat()}
        for number, (lo, hi) in enumerate(pairwise(kept))
    ]  # fmt: skip
    cut: Story = [("gpu", data.draw(st.permutations(rows)))]
    assert reported(directory, cut, **set_up) == reported(directory, [("gpu", [whole])], **set_up)


def price_changes(moments: Sequence[datetime], *, drop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """A further complete price list from each instant on, the GPU at 11, 12, ...; `drop` leaves an accelerator out."""
    base = PRICED_SINCE_JANUARY[0]
    versions = []
    for number, at in enumerate(moments):
        gpu = [] if drop() else [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": f"{11 + number}.0000"}]
        listed = {"output": "8.0000"} if drop() else {"input": "3.0001", "cache_read": "0.3", "cache_creation": "3",
                                                      "output": "9"}  # fmt: skip
        tokens_listed = [{"model": "llama-3-8b", **listed}]
        versions.append({**base, "name": f"v{number}", "valid_from": at.isoformat(), "gpu": gpu, "tokens": tokens_listed})
    return {"price_versions": [base, *versions]}


def owner_changes(moments: Sequence[datetime]) -> dict[str, Any]:
    """Everything of nlp changes hands at each instant."""
    teams = ("cv", "nlp")
    ownership = [
        {"cluster": "hq-1", "namespace": "nlp-*", "team": teams[number % 2], "valid_from": at.isoformat()}
        for number, at in enumerate(sorted(moments))
    ]
    keys = [
        {"source": "litellm-hq", "consumer": "nlp-key-1", "team": teams[number % 2], "valid_from": at.isoformat()}
        for number, at in enumerate(sorted(moments))
    ]
    return {"ownership": [*SET_UP["ownership"], *ownership], "consumers": [*CONSUMERS, *keys]}


def reported_device_us(records: list[Record]) -> Decimal:
    total = Decimal(0)
    for record in records:
        start, end = (datetime.fromisoformat(record[name]) for name in ("started_at", "ended_at"))
        inside_us = max(0, (min(end, OCTOBER.end) - max(start, OCTOBER.start)) // MICROSECOND)
        total = EXACT.add(total, record["quantity"] * Decimal(record["device_fraction"]) * inside_us)
    return total


def reported_tokens(records: list[Record]) -> int:
    return sum(
        record["input_tokens"] + record["output_tokens"]
        for record in records
        if OCTOBER.start <= datetime.fromisoformat(record["time"]) < OCTOBER.end
    )


def found(assessment: RatingResult) -> tuple[Decimal, int]:
    """Device-microseconds and tokens that the assessment names: charged, unowned and unpriced."""
    devices, count = Decimal(0), 0
    for charge in assessment.charges:
        if charge.key.kind == "gpu":
            devices = EXACT.add(devices, charge.usage_quantity)
        else:
            count += int(charge.usage_quantity)
    for item in assessment.unowned:
        if item.unit == "tokens":
            count += int(item.quantity)
        else:
            devices = EXACT.add(devices, EXACT.scaleb(item.quantity, 6))
    for missing in (*assessment.unpriced, *assessment.platform_unpriced):
        if missing.unit == "tokens":
            count += int(missing.quantity)
        else:
            devices = EXACT.add(devices, missing.quantity)
    return devices, count


@with_database
@given(tokens(), holds(), changes, changes, st.data())
def test_no_change_of_prices_or_owners_creates_or_loses_a_gpu_microsecond_or_a_token(
    directory: Path, token_records: list[Record], gpu_records: list[Record], prices: list[datetime],
    owners: list[datetime], data: st.DataObject,
) -> None:  # fmt: skip
    set_up = {**price_changes(prices, drop=lambda: data.draw(st.booleans())), **owner_changes(owners)}
    if data.draw(st.booleans()):  # nobody owns the first namespace for part of the month
        gap = data.draw(inside)
        set_up["ownership"] = [
            {**SET_UP["ownership"][0], "valid_from": gap.isoformat()}, SET_UP["ownership"][1],
        ]  # fmt: skip
    with world():
        apply(directory, **set_up)
        report_usage([("tokens", token_records), ("gpu", gpu_records)])
        assessment = rate_period(window=OCTOBER, zone="Asia/Shanghai", close_seq=None)
    assert found(assessment) == (reported_device_us(gpu_records), reported_tokens(token_records))


@with_database
@given(tokens(inside), holds(), changes, changes, st.data())
def test_what_comes_after_the_close_is_billed_by_the_next_one_and_nothing_twice(
    directory: Path, token_records: list[Record], gpu_records: list[Record], prices: list[datetime],
    owners: list[datetime], data: st.DataObject,
) -> None:  # fmt: skip
    """Charges of October over both closes are those of one close that knew everything, quantity by quantity."""
    set_up = {**price_changes(prices), **owner_changes(owners)}
    late_tokens = [record for record in token_records if data.draw(st.booleans())]
    late_holds = [record for record in gpu_records if data.draw(st.booleans())]
    early: Story = [
        ("tokens", [record for record in token_records if record not in late_tokens]),
        ("gpu", [record for record in gpu_records if record not in late_holds]),
    ]
    with world():
        apply(directory, **set_up)
        report_usage([("tokens", token_records), ("gpu", gpu_records)])
        at_once = october(rate_period(window=OCTOBER, zone="Asia/Shanghai", close_seq=None))
    with world():
        apply(directory, **set_up)
        report_usage(early)
        first = rate_period(window=OCTOBER, zone="Asia/Shanghai", close_seq=None)
        period_close(month="2026-10", actor="ops", now=OVER)
        report_usage([("tokens", late_tokens), ("gpu", late_holds), *early])
        november = billing_month("2026-11", "Asia/Shanghai")
        second = rate_period(window=november, zone="Asia/Shanghai", close_seq=None)
        period_close(month="2026-11", actor="ops", now=datetime(2026, 12, 1, tzinfo=UTC))
        assert all(proof.holds for month in ("2026-10", "2026-11") for proof in period_verify(month=month))
    both: dict[tuple[Any, ...], Decimal] = october(first)
    for key, quantity in october(second).items():
        both[key] = EXACT.add(both.get(key, Decimal(0)), quantity)
    assert both == at_once


@with_database
@given(inside, st.lists(around, min_size=1, max_size=3), st.lists(around, max_size=3), around, st.booleans())
def test_a_hold_reported_piece_by_piece_across_a_close_is_billed_exactly_once(
    directory: Path, start: datetime, before: list[datetime], after: list[datetime], end: datetime, ends: bool
) -> None:
    """Observations may reach into the open month and the end may come late, even before the last observation."""
    before, after = [max(at, start) for at in before], [max(at, start) for at in after]
    billed = min(max(before), OCTOBER.end)
    end = max(end, billed)
    record = {"started_at": start.isoformat(), "ended_at": None, "end_reason": None}
    with world():
        apply(directory, **PLAIN)
        for at in before:
            ingest_allocations(allocation_record(**record, observed_until=at.isoformat()), now=OVER, from_file=True)
        period_close(month="2026-10", actor="ops", now=OVER)
        for at in after:
            ingest_allocations(allocation_record(**record, observed_until=at.isoformat()), now=OVER, from_file=True)
        if ends:
            outcome = ingest_allocations(
                allocation_record(**{**record, "ended_at": end.isoformat(), "observed_until": None}), now=OVER
            )
            assert outcome.conflicts == 0
        period_close(month="2026-11", actor="ops", now=datetime(2026, 12, 1, tzinfo=UTC))
        proofs = [proof for month in ("2026-10", "2026-11") for proof in period_verify(month=month)]
        charged = sum(ChargeRow.objects.values_list("usage_quantity", flat=True), Decimal(0))
    until = end if ends else max(before + after)
    assert all(proof.holds for proof in proofs)
    assert charged == 8 * ((until - start) // MICROSECOND)


def october(assessment: RatingResult) -> dict[tuple[Any, ...], Decimal]:
    return {
        (key.team, key.kind, key.namespace, key.consumer, key.sku, key.token_class, key.price_version): quantity
        for key, quantity in ((charge.key, charge.usage_quantity) for charge in assessment.charges)
        if key.charge_period == "2026-10"
    }
