"""Whatever happens within a month, usage at every grain adds up to the lines of the close, and so do their prices."""

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from billing.closing.services.closing import period_close
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.grains import Grain
from billing.rating.reference_data import ReferenceData
from billing.rating.walk import Slice, adjusting, rated_usage
from billing.usage.scope import EpochFilter
from billing.usage.selectors import late_epochs
from pricing.allocation import ALLOCATED
from pricing.money import EXACT
from pricing.rating import LineKey
from tests.factories import apply, ingest_allocations, ingest_tokens
from tests.factories.histories import (
    NOVEMBER,
    OCTOBER,
    OVER,
    allocations,
    examples,
    instants,
    measured,
    set_ups,
    tokens,
    world,
)

pytestmark = pytest.mark.django_db
Lines = dict[LineKey, tuple[Decimal, Decimal]]
"""Usage and price of each line."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("set-up")


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
