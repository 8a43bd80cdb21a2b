"""Random histories of a cluster, and an agent that dies in between."""

import os
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hypothesis import event

from tests.agent.crashes import Crash, MortalConnection, mortal_state
from tests.agent.rig import Rig

SHARED = ("shared-0", "shared-1")
NODES_CLOCK = timedelta(seconds=2)
"""How far the clock of a node is off, at most."""
HISTORIES = int(os.environ.get("SUANPAN_HISTORIES", "60"))


@dataclass
class Truth:
    """What really happened to a pod; `told_end`: the end that its final object reports."""

    gpus: int
    bound: datetime | None = None
    end: datetime | None = None
    terminal_version: int | None = None
    gone_version: int | None = None
    forced: bool = False
    turned: bool = False  # its object does not report its end any more
    certain: bool = False  # the agent surely got it: nothing was lost on the way
    claims: tuple[str, ...] = ()
    name: str = ""
    versions: set[int] = field(default_factory=set)  # all in which the pod is seen to have held something
    reserved: set[int] = field(default_factory=set)  # versions in which its claims are reserved for it
    reserved_shown: set[int] = field(default_factory=set)  # those of them that the agent surely got

    @property
    def products(self) -> dict[str, int]:
        """Units by product of what the pod holds while it holds."""
        requested = {"requested": self.gpus} if self.gpus else {}
        return requested | {claim if claim in SHARED else "own": 1 for claim in self.claims}


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
        self.lost: set[int] = set()
        self.volumes_lost = 0
        self.overlapping = False
        products = {"shared-0": "shared-0", "shared-1": "shared-1", "own": "own"}
        self.cluster.add_slice("n-1", {name: {"productName": {"string": text}} for name, text in products.items()})
        for claim in SHARED:
            self.cluster.allocate(claim, claim)
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
        self.add(uid, Truth(gpus, name=f"name-{number % 3}"))

    def add(self, uid: str, truth: Truth) -> None:
        self.pods[uid] = truth
        entries = [{"name": claim, "resourceClaimName": claim} for claim in truth.claims]
        self.cluster.create(uid, truth.gpus, name=truth.name, **({"resourceClaims": entries} if entries else {}))

    def launch(self, number: int) -> None:
        """A pod that is bound at once."""
        self.create(number)
        self.bind(len(self.living(bound=False)) - 1)

    def claim(self, number: int) -> None:
        """A pod that claims is bound at once: a device of its own, shared ones, or a request beside them."""
        uid = f"pod-{len(self.pods)}"
        claims = ((SHARED[0],), (SHARED[1],), SHARED, (f"own-{uid}",), (SHARED[0], f"own-{uid}"))[number % 5]
        if f"own-{uid}" in claims:
            self.cluster.allocate(f"own-{uid}", "own")
        self.add(uid, Truth((0, 0, 2)[number % 3], claims=claims, name=f"name-{number % 3}"))
        self.bind(len(self.living(bound=False)) - 1)

    def bind(self, number: int) -> None:
        if uid := self.pick(self.living(bound=False), number):
            for claim in self.pods[uid].claims:
                self.cluster.reserve(claim, uid)
                self.pods[uid].reserved.add(self.cluster.version)
            self.cluster.bind(uid, f"n-{number % 2 + 1}")
            self.pods[uid].bound = self.cluster.now
            self.pods[uid].versions.add(self.cluster.version)

    def release(self, uid: str) -> None:
        for claim in self.pods[uid].claims:
            self.cluster.release(claim, uid)
            if claim not in SHARED:
                self.cluster.remove("resourceclaims", f"claim-{claim}")

    def run(self, number: int) -> None:
        if uid := self.pick(self.living(bound=True), number):
            self.cluster.run(uid)

    def finish(self, number: int) -> None:
        if uid := self.pick(self.living(bound=True), number):
            skew = (number % 5 - 2) * NODES_CLOCK / 2 if number % 3 == 0 else timedelta(0)
            end = max(self.cluster.now + skew, self.pods[uid].bound or self.cluster.now)
            self.cluster.finish(uid, ("Succeeded", "Failed")[number % 2], finished_at=end)
            self.pods[uid].end = end
            self.pods[uid].terminal_version = self.cluster.version
            self.release(uid)

    def turn(self, number: int) -> None:
        """A restarted kubelet fails a pod that had finished, and has lost its record."""
        if uid := self.pick([u for u in self.ended() if self.pods[u].certain], number):
            self.cluster.finish(uid, "Failed", lost=True)
            self.pods[uid].turned = True

    def ask_deletion(self, number: int) -> None:
        if uid := self.pick(self.living(bound=True), number):
            self.cluster.ask_deletion(uid, grace=number % 60)

    def collect(self, number: int) -> None:
        if uid := self.pick(self.ended(), number):
            self.cluster.delete(uid)
            self.pods[uid].gone_version = self.cluster.version

    def force(self, number: int) -> None:
        if uid := self.pick(self.living(bound=True), number):
            self.cluster.force(uid)
            self.pods[uid].gone_version = self.cluster.version
            self.pods[uid].end = self.cluster.now
            self.pods[uid].forced = True
            self.release(uid)

    def advance(self, number: int) -> None:
        self.cluster.advance((1, 7, 30, 61, 600, 3600)[number % 6])

    def compact(self, number: int) -> None:
        self.cluster.compact()

    def lose_volume(self, number: int) -> None:
        """The agent is gone for a while with all that it knew and had not delivered."""
        self.rig.lose_volume()
        self.advance(number)
        self.volumes_lost += 1
        for truth in self.pods.values():
            truth.certain = False
            truth.reserved_shown.clear()

    def break_watch(self, number: int) -> None:
        """After any time the API server has forgotten where the agent was."""
        self.cluster.advance(number)
        self.cluster.compact()

    def lose(self, number: int) -> None:
        """The latest events never reach any watch."""
        latest = self.cluster.version
        lost = set(range(latest - number % 3, latest + 1))
        self.rig.server.drop |= lost
        self.lost |= lost

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
        """The agent reads and reports; with an odd lot it dies on the way and is started again."""
        self.rig.connection.life = number * 3 if number % 4 == 3 else None
        before = self.rig.agent.store.cursor("pods").version if self.rig.connection.life is None else None
        claims_before = self.rig.agent.store.cursor("claims").version if before is not None else None
        try:
            self.rig.watch()
            self.note_certain(before)
            self.note_claims(claims_before)
            self.rig.deliver()
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

    def note_claims(self, before: str | None) -> None:
        """Reservations that this undisturbed step must have shown."""
        stream, server = self.rig.streams["claims"], self.rig.server
        if stream.error is not None or server.reorder or server.break_after is not None or before is None:
            return
        reached = int(self.rig.agent.store.cursor("claims").version or 0)
        for truth in self.pods.values():
            shown = truth.reserved - server.drop if int(before) >= self.cluster.compacted else set()
            truth.reserved_shown |= {version for version in shown if int(before) < version <= reached}

    def end(self) -> None:
        """Everything works again, the agent lists once more, and reports all."""
        self.heal()
        self.rig.platform.down = False
        self.rig.server.drop.clear()
        self.rig.restart()
        for truth in self.pods.values():  # what is still there is listed now
            there = truth.gone_version is None and truth.terminal_version is not None and not truth.turned
            truth.certain = truth.certain or there
        for name in ("claims", "pods"):
            self.rig.streams[name].list_next()
        self.rig.settle()
        self.rig.deliver()
        self.cluster.advance(180)  # long enough for a claim that was not reported to be taken for missing
        self.rig.settle()
        self.rig.deliver()
        self.rig.deliver()


OPERATIONS = (
    "launch", "launch", "claim", "claim", "create", "bind", "run", "finish", "finish", "finish", "turn", "ask_deletion",
    "collect",
    "collect", "force", "advance", "advance", "advance", "compact", "break_watch", "lose", "fault", "heal", "outage",
    "lose_volume",
    "step", "step", "step", "step", "step", "step",
)  # fmt: skip
