"""Pods with claims to devices, and how long each was allocated."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from tests.agent.cluster import START, Object
from tests.agent.rig import Rig

H100: Object = {"productName": {"string": "NVIDIA H100 80GB HBM3"}}
MIG: Object = {**H100, "profile": {"string": "1g.10gb"}}
GPU, PRODUCT = "dra/gpu.nvidia.com", "NVIDIA-H100-80GB-HBM3"


def claims(*names: str) -> dict[str, Any]:
    """What a pod's spec says of claims that stand for themselves."""
    return {"resourceClaims": [{"name": f"entry-{name}", "resourceClaimName": name} for name in names]}


def launch(here: Rig, uid: str, *names: str, gpus: int = 0, **spec: Any) -> None:
    """A pod whose claims are reserved for it and that is bound now."""
    here.cluster.create(uid, gpus, **{**claims(*names), **spec})
    for name in names:
        here.cluster.reserve(name, uid)
    here.cluster.bind(uid)
    here.cluster.run(uid)


def second(text: str) -> int:
    return int((datetime.fromisoformat(text) - START).total_seconds())


def held(here: Rig, uid: str) -> list[tuple[Any, ...]]:
    """Resource, product, units, fraction, from, until, why it ended."""
    assert here.platform.conflicts == []
    found = [record for record in here.platform.holds.values() if record["pod_uid"] == uid]
    return sorted(
        (
            record["resource"], record["accelerator"], record["quantity"], record["device_fraction"],
            second(record["started_at"]), second(record["ended_at"] or record["observed_until"]),
            record["end_reason"] if record["ended_at"] else "open",
        )
        for record in found
    )  # fmt: skip


def device_seconds(here: Rig, *uids: str) -> Decimal:
    found = [allocation[2:6] for uid in uids for allocation in held(here, uid)]
    return sum((units * Decimal(fraction) * (until - since) for units, fraction, since, until in found), Decimal(0))


def late(here: Rig) -> None:
    """`b` shares the claim of `a` from 20 s on, but its events are lost; `c`, which does from 60 s on, is reported."""
    here.cluster.allocate("one", "gpu-0")
    launch(here, "a", "one")
    here.cluster.advance(20)
    launch(here, "b", "one")
    here.server.drop |= set(range(here.cluster.version - 3, here.cluster.version + 1))
    here.cluster.advance(40)
    launch(here, "c", "one")
    here.cluster.advance(10)
    here.report()
    for name in ("claims", "pods"):
        here.streams[name].list_next()
    here.cluster.advance(30)
    here.settle()
    here.deliver()
    here.deliver()
