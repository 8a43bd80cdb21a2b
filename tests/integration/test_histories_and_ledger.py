"""Random histories with the real platform: GPU-seconds are the truth, or the difference lies within a gap that blocks.

No event is lost here: agents crash, lose their volumes and begin anew, both servers fail, watches break after any time.
`SUANPAN_HISTORIES` says how many histories the agent's own test runs; here every tenth of them.
"""

import gzip
import itertools
import json
import tempfile
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from billing.tenancy.tokens import api_token_create
from billing.usage.gaps import metering_gaps
from billing.usage.models import QuarantinedRecord
from metering.delivery import Delivery
from metering.intervals import Interval, union, without
from metering.k8s.description import Scope
from metering.records import EARLIEST
from tests.agent.histories import HISTORIES, NODES_CLOCK, OPERATIONS, History, MortalRig
from tests.stored_rows import query

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(max(600, 2 * HISTORIES))]
EXAMPLES: Final = max(10, HISTORIES // 10)
NUMBERS: Final = itertools.count(1)
operations = st.sampled_from([name for name in OPERATIONS if name not in ("claim", "lose")])


class Network(httpx.HTTPTransport):
    """The way to the platform, which may be down; it notes what the first report that arrives says of its state."""

    def __init__(self, rig: "LedgerRig") -> None:
        super().__init__()
        self.rig = rig

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.rig.platform.down:
            return httpx.Response(503)
        response = super().handle_request(request)
        if response.is_success and request.url.path.endswith("gpu-allocations"):
            self.rig.first_since = self.rig.first_since or _since(request)
        return response


def _since(request: httpx.Request) -> datetime:
    body = request.read()
    packed = request.headers.get("Content-Encoding") == "gzip"
    return datetime.fromisoformat(json.loads(gzip.decompress(body) if packed else body)["watched_since"])


class LedgerRig(MortalRig):
    """An agent that may die at any statement and reports to the real platform."""

    address, token = "", ""
    first_since: datetime | None = None

    def start(self) -> None:
        super().start()
        self.delivery.close()
        client = httpx.Client(timeout=30, transport=Network(self), trust_env=False)
        self.delivery = Delivery(self.agent.spool, endpoint=self.address, token=self.token, client=client)


@pytest.fixture
def ledger(live_server: Any) -> None:
    LedgerRig.address = live_server.url
    LedgerRig.token = api_token_create(name="agent", scopes=["usage:write"], actor="tests")[1]


@settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink)
)
@given(steps=st.lists(st.tuples(operations, st.integers(0, 200)), min_size=30, max_size=60), page=st.sampled_from([1, 500]))
@pytest.mark.usefixtures("ledger")
def test_the_ledger_holds_the_truth_or_says_when_nobody_watched(steps: list[tuple[str, int]], page: int) -> None:
    cluster = f"c-{next(NUMBERS)}"
    with tempfile.TemporaryDirectory() as folder:
        rig = LedgerRig(Path(folder) / "agent.sqlite", page=page, claims=True, scope=Scope(cluster))
        try:
            history = History(rig)
            for name, number in steps:
                getattr(history, name)(number)
            history.end()
            judge(history, rig, cluster)
        finally:
            rig.stop()


def held(cluster: str) -> dict[str, list[Interval]]:
    """What the ledger would bill of each pod; never twice."""
    found: dict[str, list[Interval]] = defaultdict(list)
    for uid, start, until in query(
        """SELECT a.pod_uid, s.start, s.until FROM usage_gpuallocation a
           JOIN usage_allocationrevision s ON s.allocation_id = a.id WHERE a.cluster = %s""", cluster,
    ):  # fmt: skip
        found[uid].append(Interval(start, until))
    for uid, pieces in found.items():
        assert sum(piece.microseconds for piece in pieces) == sum(piece.microseconds for piece in union(pieces)), uid
    return found


def judge(history: History, rig: LedgerRig, cluster: str) -> None:
    assert QuarantinedRecord.objects.count() == 0
    assert rig.first_since is not None
    now = history.cluster.now
    gaps = [piece for gap in metering_gaps(now) if gap.cluster == cluster for piece in gap.unwatched]
    gaps.append(Interval(EARLIEST, rig.first_since))
    reported = held(cluster)
    for uid, pod in history.pods.items():
        pieces = reported.pop(uid, [])
        if not pod.gpus or pod.bound is None:
            assert pieces == []
            continue
        real = [Interval(pod.bound, max(pod.bound, pod.end or now))]
        differing = union([*without(real, pieces), *without(pieces, real)])
        left = [piece for piece in without(differing, gaps) if piece.end - piece.start > NODES_CLOCK]
        assert left == [], f"{uid}: {pieces} for {real}, {left} is in no gap"
        event("a difference within a gap" if differing else "exact")
    assert reported == {}
