"""Pods that share a card as their schedulers write them -> the agent -> the ledger -> the invoice: one card is one card.

Each story is of one H800 at 10 CNY a GPU-hour, held for 10 hours whole: 100.00, however it is divided.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.tenancy.tokens import api_token_create
from tests.factories import apply
from tests.factories.agents import LedgerRig
from tests.factories.closing import close, total

pytestmark = pytest.mark.django_db(transaction=True)
Container = dict[str, Any]


@pytest.fixture
def here(live_server: Any, tmp_path: Path) -> Iterator[LedgerRig]:
    LedgerRig.address = live_server.url
    LedgerRig.token = api_token_create(name="agent", scopes=["usage:write"], actor="tests")[1]
    made = LedgerRig(tmp_path / "agent.sqlite")
    made.cluster.add_node("n-1", gpus=10, **{"nvidia.com/gpu.memory": "81920"})
    yield made
    made.stop()


def asks(**limits: str) -> Container:
    return {"name": "main", "resources": {"limits": limits}}


def of_hami(memory_mib: int, **more: str) -> Container:
    return {**asks(**{"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(memory_mib)}), **more}


def piece(memory_mib: int) -> str:
    return f"GPU-1,NVIDIA,{memory_mib},0:;"


KAI = {"schedulerName": "kai-scheduler"}
HAMI = {"schedulerName": "hami-scheduler"}
KOORDINATOR = {"schedulerName": "koord-scheduler"}
GRANTED = "hami.io/vgpu-devices-allocated"
CORES, MEMORY = "koordinator.sh/gpu-core", "koordinator.sh/gpu-memory-ratio"
STORIES: dict[str, list[tuple[dict[str, Any], dict[str, str]]]] = {
    "a half and two quarters of KAI": [
        ({**KAI, "containers": [{"name": "main"}]}, {"gpu-fraction": "0.5"}),
        ({**KAI, "containers": [{"name": "main"}]}, {"nvidia.com/container.main.gpu-memory.request": "20Gi"}),
        ({**KAI, "containers": [{"name": "main"}]}, {"gpu-memory": "20480"}),
    ],
    "a card with an annotation that is left over": [
        ({"containers": [asks(**{"nvidia.com/gpu": "1"})]}, {"gpu-fraction": "0.5", GRANTED: piece(1)}),
    ],
    "a card of KAI with an annotation that is left over": [
        ({**KAI, "containers": [asks(**{"nvidia.com/gpu": "1"})]}, {"gpu-fraction": "0.5"}),
    ],
    "init containers, a sidecar and blank slots of HAMi": [
        ({**HAMI, "initContainers": [of_hami(40_960)], "containers": [of_hami(20_480)]},
         {GRANTED: piece(40_960) + piece(20_480)}),  # a half
        ({**HAMI, "initContainers": [of_hami(10_240, restartPolicy="Always")], "containers": [of_hami(10_240)]},
         {GRANTED: piece(10_240) + piece(10_240)}),  # a quarter
        ({**HAMI, "initContainers": [{"name": "fetch"}], "containers": [of_hami(20_480), {"name": "proxy"}]},
         {GRANTED: f";{piece(20_480)},,0,0:;"}),  # a quarter
    ],
    "cores and memory of Koordinator": [
        ({**KOORDINATOR, "containers": [asks(**{CORES: "20", MEMORY: "60"})]}, {}),
        ({**KOORDINATOR, "containers": [asks(**{CORES: "40", MEMORY: "10"})]}, {}),
    ],
}  # fmt: skip


@pytest.mark.parametrize("story", STORIES)
def test_a_card_that_is_shared_is_billed_once(here: LedgerRig, tmp_path: Path, story: str) -> None:
    apply(tmp_path)
    here.settle()
    for number, (spec, annotations) in enumerate(STORIES[story]):
        pod = here.cluster.create(f"u-{number}", 0, namespace="nlp-train", **spec)
        pod["metadata"]["annotations"] = annotations
        here.cluster.put("pods", pod)
        here.cluster.bind(f"u-{number}")
    here.report()
    here.cluster.advance(36_000)
    for number in range(len(STORIES[story])):
        here.cluster.finish(f"u-{number}")
    here.report()
    here.cluster.now = datetime(2026, 11, 1, tzinfo=UTC)
    here.report()
    here.deliver()
    close()
    assert total("nlp") == Decimal("100.00")
