"""PURE: observations of a pod, reduced to what is billed: snapshots, deletions, and absences from a list.

Observations are ordered by the API server's resource versions, not by arrival. An unchanged object is seen again under its
old version at a later time; the deletion that an informer makes up for a vanished object carries the object's last version;
an absence carries the version of the list. Versions are whole numbers that grow (etcd's revisions; comparable by contract
since KEP-5504).
"""

from datetime import datetime, timedelta
from typing import Annotated

import msgspec

from metering.record_checks import EARLIEST

Moment = Annotated[datetime, msgspec.Meta(tz=True)]
TERMINAL = frozenset({"Succeeded", "Failed"})


class Condition(msgspec.Struct, frozen=True, omit_defaults=True):
    """Condition of a pod; `at` is its lastTransitionTime."""

    type: str
    status: str
    at: Moment | None = None
    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Current state of one container, init containers included; `finished_at` is state.terminated.finishedAt."""

    name: str
    started: bool = False
    terminated: bool = False
    finished_at: Moment | None = None


class PodSnapshot(msgspec.Struct, frozen=True, omit_defaults=True, tag="seen"):
    """Pod as it was in one version, seen at `observed_at` by the agent's clock."""

    uid: str
    version: int
    observed_at: Moment
    phase: str
    node: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[Condition, ...] = ()
    containers: tuple[ContainerState, ...] = ()
    start_time: Moment | None = None
    deletion_timestamp: Moment | None = None
    deletion_grace_seconds: int | None = None

    @property
    def terminal(self) -> bool:
        """Return True if the phase is terminal: the scheduler then counts the capacity as free."""
        return self.phase in TERMINAL

    @property
    def deletion_requested_at(self) -> datetime | None:
        """Return when deletion was requested: timestamp minus grace period.  Source: apimachinery meta/v1 types.go."""
        due = known(self.deletion_timestamp)
        return due and due - timedelta(seconds=self.deletion_grace_seconds or 0)

    def condition(self, kind: str, status: str = "True") -> Condition | None:
        """Return the condition of that type if it has that status, else None."""
        return next((item for item in self.conditions if (item.type, item.status) == (kind, status)), None)


class PodDeleted(msgspec.Struct, frozen=True, omit_defaults=True, tag="deleted"):
    """DELETED event of a pod; `final` is the last state that came with it.

    `watched_until`: where the event was read late, the last instant at which the watch was current and the pod still there.
    """

    uid: str
    version: int
    observed_at: Moment
    final: PodSnapshot | None = None
    watched_until: Moment | None = None


class PodMissing(msgspec.Struct, frozen=True, omit_defaults=True, tag="missing"):
    """Absence of a pod from a complete list, made at `observed_at` with this version.

    `watched_until`: the last instant at which the watch was current before it broke; None where it never broke, and the
    pod's event was lost.
    """

    uid: str
    version: int
    observed_at: Moment
    watched_until: Moment | None = None


Observation = PodSnapshot | PodDeleted | PodMissing
RANKS: dict[type[Observation], int] = {PodSnapshot: 0, PodDeleted: 1, PodMissing: 2}


def order(observation: Observation) -> tuple[int, int, datetime, bytes]:
    """Return a sort key: version; within it snapshots before deletion before absence; then time; then content."""
    content = msgspec.json.encode(observation, order="deterministic")
    return (observation.version, RANKS[type(observation)], observation.observed_at, content)


def known(instant: datetime | None) -> datetime | None:
    """Return the instant, or None for zero times: a lost container record says year 1 (kubernetes#122160, #122932)."""
    return instant if instant is not None and instant >= EARLIEST else None
