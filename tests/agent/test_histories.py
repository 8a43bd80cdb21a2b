"""Random histories of a cluster with crashes of the agent, outages of both servers, lost events and skewed clocks.

What the platform ends up with is compared with what really happened, to the second: exact wherever the agent could see
it, flagged and within its bounds where it could not, and never twice. `SUANPAN_HISTORIES` says how many histories; the
large run is `make histories`.
"""

import os
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from tests.agent.cluster import stamp
from tests.agent.crashes import Crash, MortalConnection, mortal_state
from tests.agent.rig import Rig

HISTORIES = int(os.environ.get("SUANPAN_HISTORIES", "150"))


@dataclass
class Truth:
    """What really happened to a pod; `told_end`: the end that its final object tells."""

    gpus: int
    bound: datetime | None = None
    end: datetime | None = None
    terminal_version: int | None = None
    gone_version: int | None = None
    forced: bool = False
    certain: bool = False  # the agent was surely told: nothing was lost on the way


class MortalRig(Rig):
    """A rig whose agent may die at any statement."""

    life: int | None = None

    def connect(self) -> MortalConnection:
        return mortal_state(self.state, self.life)


class History:
    """Applies operations to cluster, agent and platform, and knows the truth."""

    def __init__(self, rig: MortalRig) -> None:
        self.rig = rig
        self.cluster = rig.cluster
        self.pods: dict[str, Truth] = {}
        self.lossy = False
        self.cluster.add_node("n-1")
        self.cluster.add_node("n-2", product="NVIDIA-A100")

    def living(self, *, bound: bool) -> list[str]:
        return [
            uid for uid, pod in self.pods.items()
            if pod.end is None and pod.gone_version is None and (pod.bound is not None) is bound
        ]  # fmt: skip

    def ended(self) -> list[str]:
        return [uid for uid, pod in self.pods.items() if pod.end is not None and pod.gone_version is None]

    def pick(self, uids: list[str], number: int) -> str | None:
        return uids[number % len(uids)] if uids else None

    def create(self, number: int) -> None:
        uid = f"pod-{len(self.pods)}"
        gpus = (1, 2, 8, 0)[number % 4]
        self.pods[uid] = Truth(gpus)
        self.cluster.create(uid, gpus, name=f"name-{number % 3}")

    def launch(self, number: int) -> None:
        """A pod that is bound at once."""
        self.create(number)
        self.bind(len(self.living(bound=False)) - 1)

    def bind(self, number: int) -> None:
        if uid := self.pick(self.living(bound=False), number):
            self.cluster.bind(uid, f"n-{number % 2 + 1}")
            self.pods[uid].bound = self.cluster.now

    def run(self, number: int) -> None:
        if uid := self.pick(self.living(bound=True), number):
            self.cluster.run(uid)

    def finish(self, number: int) -> None:
        if uid := self.pick(self.living(bound=True), number):
            skew = timedelta(seconds=number % 5 - 2) if number % 3 == 0 else timedelta(0)  # the node's clock
            end = max(self.cluster.now + skew, self.pods[uid].bound or self.cluster.now)
            self.cluster.finish(uid, ("Succeeded", "Failed")[number % 2], finished_at=end)
            self.pods[uid].end = end
            self.pods[uid].terminal_version = self.cluster.version

    def turn(self, number: int) -> None:
        """A restarted kubelet fails a pod that had finished, and has lost its record."""
        if uid := self.pick([u for u in self.ended() if self.pods[u].certain], number):
            self.cluster.finish(uid, "Failed", lost=True)

    def ask_deletion(self, number: int) -> None:
        if uid := self.pick(self.living(bound=True), number):
            self.cluster.ask_deletion(uid, grace=number % 60)

    def collect(self, number: int) -> None:
        if uid := self.pick(self.ended(), number):
            self.cluster.delete(uid)
            self.pods[uid].gone_version = self.cluster.version

    def force(self, number: int) -> None:
        if uid := self.pick(self.living(bound=True), number):
            self.cluster.delete(uid)
            self.pods[uid].gone_version = self.cluster.version
            self.pods[uid].end = self.cluster.now
            self.pods[uid].forced = True

    def advance(self, number: int) -> None:
        self.cluster.advance((1, 7, 30, 61, 600, 3600)[number % 6])

    def compact(self, number: int) -> None:
        self.cluster.compact()

    def lose(self, number: int) -> None:
        """The latest events never reach any watch."""
        latest = self.cluster.version
        self.rig.server.drop |= set(range(latest - number % 3, latest + 1))

    def fault(self, number: int) -> None:
        server = self.rig.server
        choices: list[dict[str, Any]] = [
            {"duplicate": True}, {"reorder": True}, {"duplicate": True, "reorder": True}, {"break_after": number % 4},
            {"fail": [(429, {"Retry-After": "1"}), (503, {}), (500, {})]}, {"down": True}, {"bookmarks": False},
            {"expire_pages": 1},
        ]  # fmt: skip
        for name, value in choices[number % len(choices)].items():
            setattr(server, name, value)

    def heal(self, number: int = 0) -> None:
        server = self.rig.server
        server.duplicate = server.reorder = server.down = False
        server.break_after, server.bookmarks, server.fail, server.expire_pages = None, True, [], 0

    def outage(self, number: int) -> None:
        self.rig.platform.down = not self.rig.platform.down

    def step(self, number: int) -> None:
        """The agent reads and tells; with an odd lot it dies on the way and is started again."""
        self.rig.connection.life = number * 3 if number % 4 == 3 else None
        before = self.rig.agent.store.cursor("pods").version if self.rig.connection.life is None else None
        try:
            self.rig.watch()
            self.note_certain(before)
            self.rig.tell()
        except Crash:
            event("crash")
            self.rig.restart()
        self.rig.connection.life = None

    def note_certain(self, before: str | None) -> None:
        """Ends that this undisturbed step must have shown: objects that are there, or events since the last step."""
        stream, server = self.rig.streams["pods"], self.rig.server
        if stream.error is not None or server.reorder or server.break_after is not None or before is None:
            return
        reached = int(self.rig.agent.store.cursor("pods").version or 0)
        for truth in self.pods.values():
            shown = truth.terminal_version
            if shown is not None and int(before) < shown <= reached and shown not in server.drop:
                truth.certain = truth.certain or int(before) >= self.cluster.compacted

    def end(self) -> None:
        """Everything works again, the agent lists once more, and tells all."""
        self.heal()
        self.rig.platform.down = False
        self.rig.server.drop.clear()
        self.rig.restart()
        for truth in self.pods.values():  # what is still there is listed now
            there = truth.gone_version is None and truth.terminal_version is not None
            truth.certain = truth.certain or there
        self.rig.streams["pods"].list_next()
        self.rig.settle()
        self.rig.tell()
        self.rig.tell()


OPERATIONS = (
    "launch", "launch", "launch", "create", "bind", "run", "finish", "finish", "finish", "turn", "ask_deletion", "collect",
    "collect", "force", "advance", "advance", "advance", "compact", "lose", "fault", "heal", "outage",
    "step", "step", "step", "step", "step", "step",
)  # fmt: skip
histories = st.lists(st.tuples(st.sampled_from(OPERATIONS), st.integers(0, 200)), min_size=30, max_size=80)


@settings(
    max_examples=HISTORIES, deadline=None, suppress_health_check=list(HealthCheck), phases=(Phase.generate, Phase.shrink)
)
@given(operations=histories, skew_s=st.sampled_from([0, 0, 2, -4, 3600, -7200]), page=st.sampled_from([1, 3, 500]))
def test_the_platform_holds_the_truth(operations: list[tuple[str, int]], skew_s: int, page: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        rig = MortalRig(Path(folder) / "agent.sqlite", skew_s=skew_s, page=page)
        try:
            history = History(rig)
            for name, number in operations:
                getattr(history, name)(number)
            history.end()
            judge(history)
        finally:
            rig.stop()


def judge(history: History) -> None:
    platform = history.rig.platform
    assert platform.conflicts == []
    told = {record["pod_uid"]: record for record in platform.holds.values()}
    assert len(told) == len(platform.holds), "a pod is held once"
    for uid, truth in history.pods.items():
        record = told.pop(uid, None)
        if truth.gpus == 0 or truth.bound is None:
            assert record is None, f"{uid} never held anything"
            continue
        if record is None:
            assert truth.gone_version is not None, f"{uid} is still there and was never told"
            assert not truth.certain, f"{uid} was shown and never told"
            continue
        judge_one(history, uid, truth, record)
    assert told == {}
    before = dict(platform.holds)
    platform.replay()
    assert platform.holds == before, "replaying changes nothing"


def judge_one(history: History, uid: str, truth: Truth, record: dict[str, Any]) -> None:
    assert truth.bound is not None
    assert record["started_at"] == stamp(truth.bound)
    assert record["quantity"] == truth.gpus
    if truth.end is None:
        assert record["ended_at"] is None, f"{uid} still runs"
        seen_until = datetime.fromisoformat(record["observed_until"])
        assert abs(seen_until - max(history.cluster.now, truth.bound)) <= uncorrected(history)
        return
    assert record["ended_at"] is not None, f"{uid} has ended"
    seconds = datetime.fromisoformat(record["ended_at"]) - datetime.fromisoformat(record["started_at"])
    if not record["end_estimated"]:
        event("exact")
        assert seconds == truth.end - truth.bound
        return
    event("estimated")
    assert not truth.certain, f"{uid}: its end was shown, and is estimated all the same"
    slack = uncorrected(history) + timedelta(seconds=2 if not truth.forced else 0)  # a node's clock
    assert datetime.fromisoformat(record["end_earliest"]) - slack <= truth.end
    assert truth.end <= datetime.fromisoformat(record["end_latest"]) + slack


def uncorrected(history: History) -> timedelta:
    """How far the agent's clock is off that of the API server, where that is too little to be noticed."""
    skew = abs(history.rig.skew)
    return skew if skew <= timedelta(seconds=2) else timedelta(0)
