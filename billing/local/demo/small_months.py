"""PURE: the months around the detailed one: a few long jobs per node, and one token record per day, caller and model.

Their usage grows from month to month. The plan is the same on every day, and only cut off at the current time: a job that
runs today has the same end tomorrow.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random

from billing.local.demo.company import (
    GATEWAYS,
    HQ,
    LAB,
    LAB_NAMESPACE,
    MIG_RESOURCE,
    MODELS,
    NODES,
    SPIKE_MODEL,
    SPIKE_REQUESTS,
    SPIKE_TEAM,
    TEAMS,
    UNOWNED_NAMESPACE,
    DemoModel,
    DemoTeam,
    Node,
)
from billing.local.demo.month import (
    DAY,
    LOCAL_OFFSET_HOURS,
    MIG_FRACTION,
    SEED,
    Json,
    Month,
    allocate,
    measure,
    offer,
    serve,
)
from metering.intervals import Interval

REQUESTS_A_DAY = 10_000
"""Requests of the whole company at level 1, on an average day."""
WEEKDAY, WEEKEND = 1.19, 0.53
REPORTED_AT = timedelta(hours=21)
"""Time at which a gateway reports the sum of a day: an excess is judged two hours later, so it is known at midnight."""
SILENT_FOR = timedelta(hours=50)
SPLIT = 4
"""Devices of a job: two run side by side on a node of eight."""


@dataclass(frozen=True)
class Growth:
    """Size of a month: nodes of training in use, and requests as a share of the detailed month's."""

    h800: int
    a800: int
    requests: float

    def has(self, node: Node) -> bool:
        """Return True if jobs of the month run on the node: training nodes come one by one, the others exist before."""
        if node.cluster != HQ or node.resource == MIG_RESOURCE:
            return True
        return int(node.name[-2:]) <= (self.h800 if node.accelerator == "NVIDIA-H800" else self.a800)


EARLIER = (Growth(2, 2, 0.50), Growth(3, 2, 0.62), Growth(4, 3, 0.75), Growth(5, 3, 0.88))
RUNNING = Growth(6, 3, 1.08)


@dataclass(frozen=True)
class Taken:
    """Time that jobs of the detailed month, `window`, use in the months beside it: by node, from the first to the last."""

    window: Interval
    first: dict[str, datetime]
    last: dict[str, datetime]

    def free(self, node: Node, window: Interval) -> Interval:
        """Return the part of a month that those jobs leave free on a node."""
        if window.start < self.window.start:
            return Interval(window.start, min(window.end, self.first.get(node.name, window.end)))
        return Interval(max(window.start, self.last.get(node.name, window.start)), window.end)

    def uses(self, node: Node, window: Interval) -> bool:
        """Return True if those jobs use the node in a month before the detailed one."""
        return window.start < self.window.start and self.first.get(node.name, window.end) < window.end


def taken_by(detailed: Month) -> Taken:
    """Return the first and last use of each node by the detailed month."""
    first: dict[str, datetime] = {}
    last: dict[str, datetime] = {}
    for record in detailed.allocations:
        start, node = datetime.fromisoformat(record["started_at"]), record["node"]
        first[node] = min(start, first.get(node, start))
    for record, end in detailed.running:
        last[record["node"]] = max(end, last.get(record["node"], end))
    return Taken(detailed.window, first, last)


def small_month(name: str, window: Interval, growth: Growth, taken: Taken, until: datetime) -> Month:
    """Return the reports of agents at `until` for the month `name` ("2026-06")."""
    month = Month(Interval(window.start, until), seen_until=until)
    every = DAY if until < window.end else 31 * DAY
    for node in NODES:
        in_use = growth.has(node)
        if in_use or taken.uses(node, window):
            offer(month, node)
        free = taken.free(node, window)
        if not in_use or free.start >= until:
            continue
        if node.cluster != HQ:
            serve(month, node, free.start, free.end, f"-{name}")
        elif node.resource == MIG_RESOURCE:
            for team in TEAMS:
                notebook = (f"nb-{team.code}", f"notebook-{name}-{team.code}", "StatefulSet", 0, SPLIT)
                allocate(month, node, *notebook, free.start, free.end, MIG_FRACTION)
        else:
            for slot in range(node.quantity // SPLIT):
                _train(month, node, f"{name}-{node.name}-{slot}", free, every)
    return month


def _train(month: Month, node: Node, name: str, free: Interval, every: timedelta) -> None:
    random = Random(f"{SEED} {name}")  # noqa: S311 - repeatable on purpose
    teams = [team for team in TEAMS if team.training]
    at, number = free.start + timedelta(minutes=random.randrange(20, 300)), 0
    while at + timedelta(hours=2) < free.end and at < month.window.end:
        team = random.choices(teams, [team.training for team in teams])[0]
        namespace = team.namespaces[random.randrange(len(team.namespaces))]
        end = min(at + timedelta(minutes=random.randrange(60 * 60, 190 * 60)), free.end)
        number += 1
        workload = f"{namespace.split('-')[-1]}-{name}{number:02d}"
        pod = allocate(month, node, namespace, workload, "PyTorchJob", 0, SPLIT, at, end, "1", queue=team.code)
        whole_days = at + (month.window.end - at) // DAY * DAY
        judged = Interval(at, end if end <= month.window.end else whole_days)
        measure(month, team, pod, judged, SPLIT, Random(workload), every)  # noqa: S311 - repeatable on purpose
        at = end + timedelta(minutes=random.randrange(2 * 60, 26 * 60))


def unowned_job(month: Month) -> None:
    """Allocate slices that no notebook has to a job in a namespace without an owner: it blocks the close."""
    node = next(node for node in NODES if node.resource == MIG_RESOURCE)
    start, end = month.window.start + DAY, month.window.start + 3 * DAY
    if start < month.window.end:
        allocate(month, node, UNOWNED_NAMESPACE, "first-try", "Job", 0, SPLIT, start, end, MIG_FRACTION)


def lab_month(window: Interval, until: datetime) -> Month:
    """Return a small cluster whose agent fell silent: the last fifty hours are not reported, and its job was running."""
    month = Month(Interval(window.start, until), seen_until=until)
    offer(month, LAB)
    allocate(month, LAB, LAB_NAMESPACE, "arm-calibration", "Job", 0, SPLIT, window.start, window.end, "1", queue="robotics")
    return month


def daily_tokens(window: Interval, requests: float, until: datetime) -> Iterator[Json]:
    """Yield a record per complete day, caller and model."""
    whole, models = sum(team.requests for team in TEAMS), sum(model.weight for model in MODELS)
    day = window.start
    while day + DAY <= min(until, window.end):
        weekend = (day + timedelta(hours=LOCAL_OFFSET_HOURS)).weekday() >= 5
        random = Random(f"{SEED} {day}")  # noqa: S311 - repeatable on purpose
        for team in TEAMS:
            for model in MODELS:
                share = team.requests / whole * model.weight / models * random.uniform(0.95, 1.05)
                level = requests * (WEEKEND if weekend else WEEKDAY)
                yield _day_of_tokens("daily", day, team, model, REQUESTS_A_DAY * level * share)
        day += DAY


def spike(window: Interval, until: datetime) -> list[Json]:
    """Return yesterday's records of a job that sent requests in a loop; none if yesterday was in the month before."""
    days = (until - window.start) // DAY
    team = next(team for team in TEAMS if team.code == SPIKE_TEAM)
    model = next(model for model in MODELS if model.name == SPIKE_MODEL)
    return [_day_of_tokens("loop", window.start + (days - 1) * DAY, team, model, SPIKE_REQUESTS)] if days else []


def _day_of_tokens(kind: str, day: datetime, team: DemoTeam, model: DemoModel, calls: float) -> Json:
    local = day + timedelta(hours=LOCAL_OFFSET_HOURS)
    prompt, output = int(calls * model.input_tokens), int(calls * model.output_tokens)
    return {
        "id": f"{kind}-{local:%Y-%m-%d}-{team.code}-{model.name}",
        "source": list(GATEWAYS.values())[TEAMS.index(team) % len(GATEWAYS)],
        "time": (day + REPORTED_AT).astimezone(UTC).isoformat().replace("+00:00", "Z"), "consumer": f"{team.code}-app",
        "model": model.name, "input_tokens": prompt, "cache_read_input_tokens": int(prompt * model.cached * 0.6),
        "cache_creation_input_tokens": 0, "output_tokens": output,
        "reasoning_output_tokens": int(output * model.reasoning), "provider": "vllm",
    }  # fmt: skip
