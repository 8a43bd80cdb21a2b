"""The GPU pods of a production trace, lived through by a cluster before the agent: the ledger's GPU-seconds are the trace's.

Fake API server -> agent -> HTTP -> real ledger, in simulated time, with ten kills of the agent and three outages: of the
API server, of the platform, and of both. `SUANPAN_TRACES` names the folder of the traces, as in the other traces tests.
"""

import csv
import heapq
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.tenancy.tokens import api_token_create
from billing.usage.models import GpuAllocation, QuarantinedRecord
from tests.factories.agents import LedgerRig
from tests.factories.traces import trace_converted

ROUND = timedelta(hours=6)
KILLS = 10
MEMORY_MIB = 32_000

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def trace(tmp_path: Path) -> list[dict[str, str]]:
    origin = ("--origin", "2026-06-01T00:00:00Z")
    made = trace_converted("gpu", "openb_pod_list_default.csv", tmp_path / "gpu.csv", *origin)
    return list(csv.DictReader(made.read_text().splitlines()))


@pytest.fixture
def here(live_server: Any, tmp_path: Path) -> Iterator[LedgerRig]:
    LedgerRig.address = live_server.url
    LedgerRig.token = api_token_create(name="agent", scopes=["usage:write"], actor="tests")[1]
    made = LedgerRig(tmp_path / "agent.sqlite")
    yield made
    made.stop()


def grant_of(row: dict[str, str]) -> str:
    memory, cores = (int(Fraction(row["device_fraction"]) * whole) for whole in (MEMORY_MIB, 100))
    return ":".join(f"GPU-{n},NVIDIA,{memory},{cores}" for n in range(int(row["quantity"]))) + ":;"


def begin(here: LedgerRig, row: dict[str, str]) -> None:
    """A pod of the trace; a shared device is granted as HAMi does."""
    uid = row["pod_uid"]
    shared = row["device_fraction"] != "1"
    placed_by = "hami-scheduler" if shared else "default-scheduler"
    here.cluster.create(
        uid, int(row["quantity"]), name=row["pod"], namespace=row["namespace"], schedulerName=placed_by
    )
    if shared:
        pod = here.cluster.pod(uid)
        pod["metadata"]["annotations"] = {"hami.io/vgpu-devices-allocated": grant_of(row)}
        here.cluster.put("pods", pod)
    here.cluster.bind(uid, f"node-{row['accelerator'].lower()}")
    here.cluster.run(uid)


def lives(trace: list[dict[str, str]]) -> Iterator[tuple[datetime, int, dict[str, str]]]:
    """(instant, 0 for an end and 1 for a begin, row) in order of time."""
    moments: list[tuple[datetime, int, int]] = []
    for number, row in enumerate(trace):
        heapq.heappush(moments, (datetime.fromisoformat(row["started_at"]), 1, number))
        heapq.heappush(moments, (datetime.fromisoformat(row["ended_at"]), 0, number))
    while moments:
        at, kind, number = heapq.heappop(moments)
        yield at, kind, trace[number]


def test_every_pod_of_the_trace_is_billed_to_the_second(trace: list[dict[str, str]], here: LedgerRig) -> None:
    for product in sorted({row["accelerator"] for row in trace}):
        here.cluster.add_node(f"node-{product.lower()}", product=product, **{"nvidia.com/gpu.memory": str(MEMORY_MIB)})
    moments = list(lives(trace))
    here.cluster.now = moments[0][0]
    here.settle()
    rounds = _rounds(moments)
    kills = {len(rounds) * (number + 1) // (KILLS + 1) for number in range(KILLS)}
    third = len(rounds) // 4
    api_down, platform_down = {third, third + 1, 3 * third}, {2 * third, 2 * third + 1, 3 * third}
    for number, part in enumerate(rounds):
        here.server.down = number in api_down
        for at, kind, row in part:
            here.cluster.now = max(here.cluster.now, at)
            if kind:
                begin(here, row)
            else:
                here.cluster.finish(row["pod_uid"])
        here.watch()
        if number in kills:
            here.restart()
        if number not in platform_down:
            here.deliver()
    here.settle()
    here.deliver()
    here.deliver()
    assert QuarantinedRecord.objects.count() == 0
    assert GpuAllocation.objects.filter(end_estimated=True).count() == 0
    assert _ledger() == _expected(trace)
    assert len(_expected(trace)) == len(trace)


def _rounds(moments: list[Any]) -> list[list[Any]]:
    """Six hours of the trace at a time; then the agent looks. Rounds in which nothing happens are passed over."""
    parts: dict[int, list[Any]] = defaultdict(list)
    for moment in moments:
        parts[(moment[0] - moments[0][0]) // ROUND].append(moment)
    return [parts[number] for number in sorted(parts)]


def _expected(trace: list[dict[str, str]]) -> dict[str, Fraction]:
    return {
        row["pod_uid"]: Fraction(row["device_fraction"]) * int(row["quantity"])
        * ((datetime.fromisoformat(row["ended_at"]) - datetime.fromisoformat(row["started_at"])) // timedelta(seconds=1))
        for row in trace
    }  # fmt: skip


def _ledger() -> dict[str, Fraction]:
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT a.pod_uid, a.quantity * a.device_fraction * extract(epoch FROM s.until - s.start)
               FROM usage_gpuallocation a JOIN usage_allocationrevision s ON s.allocation_id = a.id"""
        )
        held: dict[str, Fraction] = defaultdict(Fraction)
        for uid, seconds in cursor.fetchall():
            held[uid] += Fraction(seconds)
        return dict(held)
