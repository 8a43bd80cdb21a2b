"""Whatever is reported or set up: where a month is rated to another result, the fingerprint of its inputs is another one.

The reverse may be coarse: a fingerprint may change although nothing that is billed does.
"""

from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.db import transaction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from billing.closing.services.closing import period_close
from billing.closing.services.showback import ModeError, billing_mode_put
from billing.invoices.services.periods import period_open
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.input_fingerprint import fingerprint_now
from billing.usage.services import rollups_fold
from metering.intervals import Interval
from tests import factories
from tests.factories import SET_UP, allocation_record, apply, ingest_capacity, ingest_sample, ingest_tokens, token_record
from tests.hypothesis_profile import examples

pytestmark = pytest.mark.django_db
BEGIN = datetime(2026, 9, 30, 16, tzinfo=UTC)
END = datetime(2026, 10, 31, 16, tzinfo=UTC)
SINCE = {"valid_from": "2026-01-01"}
POLICY = {
    "name": "bands", **SINCE, "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50", "reward": "0.10",
    "min_minutes": 30, "min_coverage": "0.50",
}  # fmt: skip
PREEMPTED = {"name": "carried", **SINCE, "preempted": "platform"}
State = dict[str, Any]
Step = Callable[[State, Path], object]

edges = st.sampled_from([BEGIN, BEGIN + timedelta(hours=8), datetime(2026, 10, 15, 4, 30, tzinfo=UTC), END])
moments = st.builds(lambda at, minutes: at + timedelta(minutes=minutes), edges, st.integers(-90, 90))
numbers = st.integers(1, 4)
places = st.sampled_from(["nlp-train", "cv", "serving", "nobodys"])


@st.composite
def allocations(draw: st.DrawFn) -> Step:
    """A pod that starts, goes on or ends: the same numbers come again, longer or shorter, and conflict now and then."""
    number, began = draw(numbers), BEGIN + timedelta(minutes=37 * draw(st.integers(-2, 2)))
    until = draw(st.one_of(moments, st.just(began + timedelta(hours=1))))
    ended = draw(st.booleans())
    seen = max(until, began + timedelta(minutes=1)).isoformat()
    facts = {
        "namespace": draw(places), "started_at": began.isoformat(), "ended_at": seen if ended else None,
        "observed_until": seen, "end_reason": draw(st.sampled_from(["completed", "preempted"])) if ended else "",
        "workload": {"kind": "Job", "name": draw(st.sampled_from(["one", "two"]))},
    }  # fmt: skip
    name = f"{number}-{began:%d%H%M}-{facts['namespace']}"
    return lambda _, __: factories.ingest_allocations(allocation_record(name, **facts))


@st.composite
def requests(draw: st.DrawFn) -> Step:
    record = token_record(
        draw(st.integers(1, 50)), time=draw(moments).isoformat(), output_tokens=draw(st.integers(40, 10**6)),
        consumer=draw(st.sampled_from(["nlp-key-1", "nobodys"])),
    )  # fmt: skip
    return lambda _, __: ingest_tokens(record)


@st.composite
def samples(draw: st.DrawFn) -> Step:
    """Of a workload, wherever it ran: a sample may reach over the end of the month."""
    begin = draw(moments)
    fields = {
        "workload": {"kind": "Job", "name": draw(st.sampled_from(["one", "two"]))}, "start": begin.isoformat(),
        "end": (begin + timedelta(minutes=draw(st.integers(5, 120)))).isoformat(), "gpu_seconds": "3600",
        "mfu": draw(st.sampled_from(["0.05", "0.60"])), "hfu": "0.65",
    }  # fmt: skip
    return lambda _, __: ingest_sample(**fields)


@st.composite
def capacity(draw: st.DrawFn) -> Step:
    at = draw(moments)
    offered = {"from": at.isoformat(), "until": (at + timedelta(hours=draw(st.integers(1, 4)))).isoformat()}
    node, quantity = draw(numbers), draw(st.integers(1, 8))
    return lambda _, __: ingest_capacity(
        cluster="hq-1", node=f"node-{node}-{quantity}", accelerator="NVIDIA-H800", resource="nvidia.com/gpu",
        quantity=quantity, **offered,
    )  # fmt: skip


@st.composite
def set_up(draw: st.DrawFn) -> Step:
    """One more price list, owner or policy, from any moment on."""
    at, team = draw(moments).isoformat(), draw(st.sampled_from(["nlp", "cv"]))
    what = draw(st.sampled_from(["price_versions", "ownership", "consumers", "efficiency_policies"]))

    def change(state: State, directory: Path) -> None:
        number = state["changes"] = state.get("changes", 0) + 1
        rows = {
            "price_versions": {**SET_UP["price_versions"][0], "name": f"list-{number}", "valid_from": at, "gpu": [
                {"accelerator": "NVIDIA-H800", "price_per_gpu_hour": f"{10 + number}.0000"}]},
            "ownership": {"cluster": "hq-1", "namespace": f"n{'o' * (number % 2)}*", "team": team, "valid_from": at},
            "consumers": {"source": "litellm-hq", "consumer": "nobodys", "team": team, "valid_from": at},
            "efficiency_policies": {**POLICY, "name": f"bands-{number}", "reward": "0.20", "valid_from": at},
        }  # fmt: skip
        before = list(state["sections"][what])
        state["sections"][what] = [*before, rows[what]]
        try:
            with transaction.atomic():
                apply(directory, watched=False, **state["sections"])
        except ValueError:  # it overlaps another, or would change a closed month
            state["sections"][what] = before

    return change


@st.composite
def modes(draw: st.DrawFn) -> Step:
    """A team that is charged, or only shown its costs, from the month before or this or the next one on."""
    facts = {
        "team": draw(st.sampled_from(["nlp", "cv"])), "from_month": draw(st.sampled_from(["2026-09", "2026-10", "2026-11"])),
        "mode": draw(st.sampled_from(["shadow", "chargeback"])),
    }  # fmt: skip

    def switch(state: State, _: Path) -> None:
        try:
            billing_mode_put(**facts, reason="first quarter", actor="app", now=BEGIN)
        except ModeError as error:  # of a closed month
            state["refused"] = error

    return switch


def september_is_closed(state: State, _: Path) -> None:
    if not state.get("closed"):
        try:
            period_close(month="2026-09", actor="ops", now=BEGIN + timedelta(days=1))
            state["closed"] = True
        except Exception as error:  # noqa: BLE001 - whatever blocks it; then it stays open
            state["blocked"] = error


def folded(_: State, __: Path) -> None:
    rollups_fold()


STEPS = st.lists(
    st.one_of(
        allocations(), allocations(), requests(), samples(), capacity(), set_up(), modes(),
        st.just(september_is_closed), st.just(folded),
    ), min_size=2, max_size=9,
)  # fmt: skip


def result_of(rated: RatingResult) -> str:
    """All that a rating says, but what it was looked up in."""
    return repr([getattr(rated, item.name) for item in fields(rated) if item.name != "reference_data"])


def billed() -> tuple[str, str]:
    period = period_open(month="2026-10")
    asked: Any = {"window": Interval(period.start, period.end), "zone": period.zone}
    return fingerprint_now(**asked), result_of(rate_period(**asked, close_seq=None))


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS, pooled=st.booleans())
def test_another_result_has_another_fingerprint(steps: list[Step], pooled: bool) -> None:
    with TemporaryDirectory() as directory, transaction.atomic():
        sections = {
            "price_versions": [{**SET_UP["price_versions"][0], **SINCE}], "ownership": SET_UP["ownership"],
            "consumers": SET_UP["consumers"], "efficiency_policies": [{**POLICY, "neutral_pool": pooled}],
        }  # fmt: skip
        state: State = {"sections": {**sections, "interruption_policies": [PREEMPTED]}}
        apply(Path(directory), **state["sections"])
        factories.person("app", "approver")
        known = dict([billed()])
        for step in steps:
            step(state, Path(directory))
            fingerprint, result = billed()
            assert known.setdefault(fingerprint, result) == result
        transaction.set_rollback(True)
