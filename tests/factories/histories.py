"""Random histories of a month: owners, prices, policies and commitments that change within it, and what was used."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.db import transaction
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from metering.intervals import billing_month
from tests import hypothesis_profile
from tests.factories import SET_UP, allocation_record, ingest_sample, token_record

OCTOBER, NOVEMBER = (billing_month(month, "Asia/Shanghai") for month in ("2026-10", "2026-11"))
OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
BANDS = {"hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50", "reward": "0.10"}
TERMS = {"team": "nlp", "accelerator": "NVIDIA-H800"}
inside = st.integers(1, OCTOBER.microseconds - 1).map(lambda us: OCTOBER.start + timedelta(microseconds=us))
hourly = st.integers(1, 743).map(lambda hour: OCTOBER.start + timedelta(hours=hour))
instants = st.one_of(inside, hourly)


@contextmanager
def world() -> Iterator[None]:
    """A ledger that vanishes after each example."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


@st.composite
def set_ups(draw: st.DrawFn) -> dict[str, Any]:
    """An owner, a price, a policy and a commitment that change within October, each at an instant of its own."""
    owner, price, policy, bought = (draw(instants).isoformat() for _ in range(4))
    begin, end = sorted(draw(st.lists(instants, min_size=2, max_size=2, unique=True)))
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
        "commitments": [{**TERMS, "name": "nlp-2026", "price_per_gpu_hour": "8.0000", "valid_from": bought,
                         "gpu_hours_per_month": str(draw(st.integers(1, 3000)))},
                        {**TERMS, "name": "nlp-more", "price_per_gpu_hour": "7.5000", "valid_from": begin.isoformat(),
                         "valid_until": end.isoformat(), "gpu_hours_per_month": str(draw(st.integers(1, 3000)))}],
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


def examples(number: int) -> settings:
    return settings(
        max_examples=hypothesis_profile.examples(number), deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
