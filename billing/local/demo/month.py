"""PURE: the month of the made-up company, from a fixed seed: allocations, capacity, efficiency samples, token records.

Reported values only; their cost is left to the platform.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import cos, pi
from random import Random
from typing import Any

from billing.local.demo.company import (
    EDGES,
    GATEWAYS,
    HQ,
    MIG_RESOURCE,
    MODELS,
    MOVING_NAMESPACE,
    NODES,
    ORPHAN_NAMESPACE,
    TEAMS,
    DemoTeam,
    Node,
)
from metering.intervals import Interval
from pricing.meters import MICROSECONDS_PER_HOUR

SEED = 20261001
LAYOUTS = ((8,), (8,), (4, 4), (4, 2, 2), (8,), (2, 2, 2, 2))
MIG_FRACTION = "0.142857142857"
LOCAL_OFFSET_HOURS = 8
DAY = timedelta(days=1)

Json = dict[str, Any]


@dataclass
class Month:
    """Reports of all agents for one month.

    `seen_until`: the instant up to which agents have seen jobs that run on; `running`: those jobs, with their later end.
    """

    window: Interval
    seen_until: datetime
    running: list[tuple[Json, datetime]] = field(default_factory=list)
    allocations: list[Json] = field(default_factory=list)
    capacity: list[Json] = field(default_factory=list)
    samples: list[Json] = field(default_factory=list)


def make_month(window: Interval) -> Month:
    """Create allocations, capacity and samples. Jobs start some hours before the month and run some hours beyond it."""
    month = Month(window, seen_until=window.end + timedelta(hours=1))
    random = Random(SEED)  # noqa: S311 - repeatable on purpose
    for node in NODES:
        offer(month, node)
        if node.cluster in EDGES:
            serve(month, node, window.start - timedelta(days=9), window.end + timedelta(hours=6), "")
        elif node.resource == MIG_RESOURCE:
            for slot in range(14):
                _run_notebooks(month, node, slot, random)
        else:
            layout = LAYOUTS[random.randrange(len(LAYOUTS))] if node.accelerator == "NVIDIA-A800" else LAYOUTS[0]
            if node.accelerator == "NVIDIA-H800":
                layout = LAYOUTS[int(node.name[-2:]) % len(LAYOUTS)]
            for slot, width in enumerate(layout):
                _run_training(month, node, slot, width, random)
    return month


def offer(month: Month, node: Node) -> None:
    """Report a node as ready the whole month."""
    month.capacity.append(
        {"cluster": node.cluster, "node": node.name, "accelerator": node.accelerator, "resource": node.resource,
         "quantity": node.quantity, "from": _text(month.window.start), "until": _text(month.window.end),
         "condition": "ready"}
    )  # fmt: skip


def serve(month: Month, node: Node, start: datetime, end: datetime, release: str) -> None:
    """Allocate all devices of a node to inference servers; the platform pays and recovers the cost through tokens."""
    for index in range(node.quantity):
        workload = f"vllm-{MODELS[index % 3].name}{release}"
        allocate(month, node, "serving", workload, "Deployment", f"{node.name}-{index}", 1, start, end, "1")


def _run_training(month: Month, node: Node, slot: int, width: int, random: Random) -> None:
    teams = [team for team in TEAMS if team.training]
    now = month.window.start - timedelta(seconds=random.randrange(3600, 30 * 3600))
    number = 0
    while now < month.window.end:
        team = random.choices(teams, [team.training for team in teams])[0]
        namespace = _namespace(team, random)
        seconds = int(min(max(random.lognormvariate(10.9, 0.9), 400), 90 * 3600))
        number += 1
        workload = f"{namespace.split('-')[-1]}-{node.name}-{slot}{number:03d}"
        attempts = 2 if random.random() < 0.12 else 1
        for attempt in range(attempts):
            if now >= month.window.end:
                break
            part = seconds // attempts + attempt
            end = now + timedelta(seconds=part)
            reason = "completed" if attempt == attempts - 1 else "preempted"
            pod = allocate(
                month, node, namespace, workload, "PyTorchJob", attempt, width, now, end, "1", reason, queue=team.code
            )
            measure(month, team, pod, Interval(now, end), width, random)
            now = end + timedelta(seconds=random.randrange(60, 300))
        now += timedelta(seconds=random.randrange(600, 5 * 3600))


def _namespace(team: DemoTeam, random: Random) -> str:
    draw = random.random()
    if draw < 0.02:
        return ORPHAN_NAMESPACE
    if team.code in ("cv", "robotics") and draw < 0.45:
        return MOVING_NAMESPACE
    return team.namespaces[random.randrange(len(team.namespaces))]


def _run_notebooks(month: Month, node: Node, slot: int, random: Random) -> None:
    now = month.window.start - timedelta(seconds=random.randrange(60, 8 * 3600))
    number = 0
    while now < month.window.end:
        team = TEAMS[random.randrange(len(TEAMS))]
        end = now + timedelta(seconds=random.randrange(30, 11 * 3600))
        number += 1
        name = f"notebook-{slot:02d}-{number:03d}"
        width = random.choice((1, 1, 1, 2, 4))
        allocate(month, node, f"nb-{team.code}", name, "StatefulSet", 0, width, now, end, MIG_FRACTION)
        now = end + timedelta(seconds=random.randrange(30, 6 * 3600))


def allocate(
    month: Month, node: Node, namespace: str, workload: str, kind: str, attempt: int | str, width: int, start: datetime,
    end: datetime, fraction: str, reason: str = "completed", queue: str | None = None,
) -> Json:  # fmt: skip
    pod = f"{workload}-{attempt}"
    still_running = end > month.window.end
    record: Json = {
        "allocation_id": f"{node.cluster}/{node.name}/{pod}", "cluster": node.cluster, "namespace": namespace,
        "pod": pod, "pod_uid": f"{node.cluster}-{node.name}-{pod}", "resource": node.resource, "quantity": width,
        "device_fraction": fraction, "accelerator": node.accelerator, "node": node.name, "started_at": _text(start),
        "ended_at": None if still_running else _text(end),
        "observed_until": _text(min(end, month.seen_until)),
        "end_reason": None if still_running else reason, "scheduler": "volcano", "queue": queue,
        "workload": {"kind": kind, "name": workload}, "site": node.site,
    }  # fmt: skip
    month.allocations.append(record)
    if still_running:
        month.running.append((record, end))
    return record


def measure(
    month: Month, team: DemoTeam, pod: Json, held: Interval, width: int, random: Random, every: timedelta = DAY
) -> None:
    """Add one sample a day, or per `every`; a few jobs have gaps in their telemetry, and one team has none."""
    start, end = max(held.start, month.window.start), min(held.end, month.window.end)
    if team.mfu is None or end <= start:
        return
    low, high = team.mfu
    mfu = random.uniform(low, high)
    coverage = "0.910000" if random.random() < 0.05 else "0.990000"
    while start < end:
        until = min(end, start + every)
        seconds = int((until - start).total_seconds())
        month.samples.append(
            {"cluster": HQ, "pod_uid": pod["pod_uid"], "start": _text(start), "end": _text(until),
             "gpu_seconds": str(seconds * width), "mfu": f"{mfu:.4f}", "hfu": f"{min(mfu * 1.18, 0.99):.4f}",
             "dtype": "bf16", "method": "demo", "coverage": coverage}
        )  # fmt: skip
        start = until


def token_records(window: Interval, count: int, seed: int = SEED) -> Iterator[Json]:
    """Yield `count` gateway requests in time order: busy by day, quiet at night, quieter at weekends."""
    random = Random(seed + 1)  # noqa: S311 - repeatable on purpose
    hours = window.microseconds // MICROSECONDS_PER_HOUR
    weights = [_busy(window.start + timedelta(hours=hour)) for hour in range(hours)]
    callers = [
        (gateway, f"{team.code}-{app}", team.requests * (3 if app == "app" else 1))
        for gateway in GATEWAYS.values()
        for team in TEAMS
        if team.requests
        for app in ("app", "dev")
    ]
    caller_weights = [weight for _, _, weight in callers]
    model_weights = [model.weight for model in MODELS]
    per_hour = [int(count * weight / sum(weights)) for weight in weights]
    per_hour[0] += count - sum(per_hour)
    for hour, requests in enumerate(per_hour):
        start = window.start + timedelta(hours=hour)
        seconds = sorted(random.random() * 3600 for _ in range(requests))
        chosen = random.choices(callers, caller_weights, k=requests)
        models = random.choices(MODELS, model_weights, k=requests)
        for second, (gateway, consumer, _), model in zip(seconds, chosen, models, strict=True):
            prompt = int(random.expovariate(1 / model.input_tokens)) + 8
            output = int(random.expovariate(1 / model.output_tokens)) + 1 if model.output_tokens else 0
            cached = int(prompt * model.cached) if random.random() < 0.6 else 0
            yield {
                "id": f"chatcmpl-{random.getrandbits(96):024x}", "source": gateway,
                "time": _text(start + timedelta(microseconds=int(second * 1e6))), "consumer": consumer,
                "model": model.name, "input_tokens": prompt, "cache_read_input_tokens": cached,
                "cache_creation_input_tokens": 0, "output_tokens": output,
                "reasoning_output_tokens": int(output * model.reasoning), "provider": "vllm",
            }  # fmt: skip


def _busy(hour: datetime) -> float:
    local = hour + timedelta(hours=LOCAL_OFFSET_HOURS)
    daily = 1.15 - cos((local.hour - 3) / 24 * 2 * pi)
    return daily * (0.45 if local.weekday() >= 5 else 1.0)


def _text(instant: datetime) -> str:
    return instant.astimezone(UTC).isoformat().replace("+00:00", "Z")
