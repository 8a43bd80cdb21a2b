"""Whatever happens within a month, usage at every grain adds up to the lines of the close, and so do their prices."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from billing.closing.services.closing import period_close
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.grains import Grain
from billing.rating.reference_data import ReferenceData
from billing.rating.walk import Slice, adjusting, rated_usage
from billing.usage.selectors import EpochFilter, late_epochs
from metering.intervals import billing_month
from pricing.allocation import ALLOCATED
from pricing.money import EXACT
from pricing.rating import LineKey
from tests.factories import SET_UP, allocation_record, apply, ingest_allocations, ingest_sample, ingest_tokens, token_record

pytestmark = pytest.mark.django_db
OCTOBER, NOVEMBER = (billing_month(month, "Asia/Shanghai") for month in ("2026-10", "2026-11"))
OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
BANDS = {"hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50", "reward": "0.10"}
inside = st.integers(1, OCTOBER.microseconds - 1).map(lambda us: OCTOBER.start + timedelta(microseconds=us))
hourly = st.integers(1, 743).map(lambda hour: OCTOBER.start + timedelta(hours=hour))
instants = st.one_of(inside, hourly)
Lines = dict[LineKey, tuple[Decimal, Decimal]]
"""Usage and price of each line."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("set-up")


@contextmanager
def world() -> Iterator[None]:
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@st.composite
def set_ups(draw: st.DrawFn) -> dict[str, Any]:
    """An owner, a price, a policy and a commitment that change within October, each at an instant of its own."""
    owner, price, policy, bought = (draw(instants).isoformat() for _ in range(4))
    first = SET_UP["price_versions"][0]
    dearer = [{**entry, **{name: "12.3457" for name in entry if name.startswith("price_per")}} for entry in first["gpu"]]
    tokens = [{"model": "llama-3-8b", "input": "1.9", "cache_read": "0.3", "cache_creation": "2.1", "output": "7.7"}]
    shared = {"cluster": "hq-1", "namespace": "shared"}
    source = {"source": "litellm-hq", "consumer": "key"}
    return {
        "ownership": [*SET_UP["ownership"], {**shared, "team": "nlp", "valid_from": "2026-01-01", "valid_until": owner},
                      {**shared, "team": "cv", "valid_from": owner}],
        "consumers": [{**source, "team": "cv", "valid_from": "2026-01-01", "valid_until": owner},
                      {**source, "team": "nlp", "valid_from": owner}],
        "price_versions": [first, {"name": "later", "valid_from": price, "gpu": dearer, "tokens": tokens}],
        "efficiency_policies": [{**BANDS, "name": "first", "valid_from": "2026-10-01"},
                                {**BANDS, "name": "second", "valid_from": policy, "form": "linear"}],
        "commitments": [{"name": "nlp-2026", "team": "nlp", "accelerator": "NVIDIA-H800", "price_per_gpu_hour": "8.0000",
                         "gpu_hours_per_month": str(draw(st.integers(1, 3000))), "valid_from": bought}],
        "interruption_policies": [{"name": "sla", "valid_from": "2026-10-01", "preempted": "platform",
                                   "node_lost": {"cap_hours": "7"}}],
    }  # fmt: skip


@st.composite
def allocations(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    for number in range(draw(st.integers(1, 5))):
        start, end = sorted(draw(st.lists(instants, min_size=2, max_size=2, unique=True)))
        job = draw(st.sampled_from(["", "one", "two"]))
        found.append(
            allocation_record(
                number, namespace=draw(st.sampled_from(["nlp-train", "shared", "cv", "serving"])),
                quantity=draw(st.integers(1, 9)), device_fraction=draw(st.sampled_from(["1", "1", "0.142857142857"])),
                resource=draw(st.sampled_from(["nvidia.com/gpu", "nvidia.com/gpu", "nvidia.com/mig-1g.10gb"])),
                started_at=start.isoformat(), ended_at=end.isoformat(), observed_until=end.isoformat(),
                end_reason=draw(st.sampled_from(["completed", "preempted", "node lost"])),
                queue=draw(st.sampled_from(["", "gold"])), site=draw(st.sampled_from(["", "north"])),
                **({"workload": {"kind": "Job", "name": job}} if job else {}),
            )
        )  # fmt: skip
    return found


@st.composite
def tokens(draw: st.DrawFn) -> list[dict[str, Any]]:
    return [
        token_record(
            number, consumer=draw(st.sampled_from(["key", "key"])), time=draw(instants).isoformat(), input_tokens=used,
            cache_read_input_tokens=used // 3, cache_creation_input_tokens=used // 4, output_tokens=draw(st.integers(0, 9)),
            reasoning_output_tokens=0,
        )
        for number, used in enumerate(draw(st.lists(st.integers(0, 10**6), max_size=4)))
    ]  # fmt: skip


def measured(record: dict[str, Any], mfu: str) -> None:
    """A sample of all of the time of an allocation."""
    start, end = (datetime.fromisoformat(record[name]) for name in ("started_at", "ended_at"))
    seconds = record["quantity"] * Decimal(record["device_fraction"]) * ((end - start) // timedelta(seconds=1))
    ingest_sample(
        pod_uid=record["pod_uid"], start=record["started_at"], end=record["ended_at"], mfu=mfu, hfu=mfu, method="palm",
        gpu_seconds=str(seconds.quantize(Decimal("1.000000"))),
    )  # fmt: skip


def billed(found: RatingResult, *, correction: bool) -> Lines:
    """What a close charges teams, without idle time and shared cost."""
    return {
        charge.key: (charge.usage_quantity.normalize(), charge.unit_price.normalize())
        for charge in found.charges
        if not charge.key.platform and charge.key.kind not in ALLOCATED and charge.key.correction == correction
    }


def walked(
    part: Slice, reference_data: ReferenceData, grain: Grain, found: RatingResult, cuts: list[datetime]
) -> Lines:
    """The same, added up from usage at a grain."""
    sums: dict[tuple[LineKey, Decimal], Decimal] = {}
    for item in rated_usage(part, reference_data, grain, verdicts=adjusting(found.verdicts), cuts=cuts):
        name = item.key, item.price.normalize()
        sums[name] = EXACT.add(sums.get(name, Decimal(0)), item.quantity)
    lines = {key: (usage.normalize(), price) for (key, price), usage in sums.items() if usage}
    assert len(lines) == sum(map(bool, sums.values()))  # one price a line
    return lines


def by_job(
    part: Slice, reference_data: ReferenceData, grain: Grain, found: RatingResult
) -> dict[tuple[LineKey, str], Decimal]:
    """Usage of devices of each line and job."""
    sums: dict[tuple[LineKey, str], Decimal] = {}
    for item in rated_usage(part, reference_data, grain, verdicts=adjusting(found.verdicts)):
        if item.key.kind != "tokens" and item.quantity:
            name = item.key, item.place.resource
            sums[name] = EXACT.add(sums.get(name, Decimal(0)), item.quantity).normalize()
    return sums


def examples(number: int) -> settings:
    return settings(
        max_examples=number, deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip


@examples(25)
@given(set_ups(), allocations(), tokens(), st.lists(instants, max_size=3), st.data())
def test_usage_at_every_grain_adds_up_to_the_lines_of_a_close(
    directory: Path, set_up: dict[str, Any], held: list[dict[str, Any]], used: list[dict[str, Any]], cuts: list[datetime],
    data: st.DataObject,
) -> None:  # fmt: skip
    with world():
        apply(directory, **set_up)
        ingest_tokens(*used)
        ingest_allocations(*held, now=OVER)
        for record in held:
            measured(record, data.draw(st.sampled_from(["0.10", "0.30", "0.60"])))
        found = rate_period(window=OCTOBER, zone="Asia/Shanghai", close_seq=None)
        assert found.reference_data is not None
        part = Slice.of(found.reference_data, OCTOBER, "2026-10", EpochFilter())
        for kind in {charge.key.kind for charge in found.charges}:
            event(kind)
        for grain in Grain:
            assert walked(part, found.reference_data, grain, found, cuts) == billed(found, correction=False), grain
        told_apart = [by_job(part, found.reference_data, grain, found) for grain in (Grain.HOUR, Grain.JOB, Grain.POD)]
        assert told_apart[0] == told_apart[1] == told_apart[2]


@examples(8)
@given(set_ups(), allocations(), allocations(), tokens(), st.lists(instants, max_size=3))
def test_late_usage_at_every_grain_adds_up_to_the_corrections_of_the_next_close(
    directory: Path, set_up: dict[str, Any], held: list[dict[str, Any]], late: list[dict[str, Any]],
    used: list[dict[str, Any]], cuts: list[datetime],
) -> None:  # fmt: skip
    with world():
        apply(directory, **set_up)
        ingest_allocations(*held, now=OVER)
        period_close(month="2026-10", actor="ops", now=OVER)
        names = [{"allocation_id": f"late-{number}", "pod_uid": f"late-{number}"} for number in range(len(late))]
        ingest_allocations(*(record | name for record, name in zip(late, names, strict=True)), now=OVER)
        ingest_tokens(*used)
        found = rate_period(window=NOVEMBER, zone="Asia/Shanghai", close_seq=None)
        assert found.reference_data is not None
        part = Slice.of(found.reference_data, OCTOBER, "2026-10", late_epochs(2), correction=True)
        for grain in Grain:
            assert walked(part, found.reference_data, grain, found, cuts) == billed(found, correction=True), grain
