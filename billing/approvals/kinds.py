"""Rules of one kind of proposal: the rights to decide, the effect of an approval, and the messages of refusals."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeVar

from billing.approvals.models import Proposal, Step
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.tenancy.access import Right

P = TypeVar("P", bound=Proposal)
Action = Step.Action


class Why(Enum):
    STATE = "it is not in a state for that step"
    STALE = "the person looked at another revision"
    MAKER = "a maker would decide"
    REASON = "a rejection without a reason"
    CHANGED = "it is not any more what was submitted"
    TAKEN = "another open proposal of that subject"


@dataclass(frozen=True, slots=True)
class Refused:
    """Refused step: the action, the actor, the revision that the actor saw, and its subject."""

    why: Why
    action: str
    actor: str
    revision: int | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """Requirements and effect of an approval: the number of `persons`, the effect, and the stored `outcome`."""

    effect: Callable[[], object] = lambda: None
    persons: int = 1
    outcome: Mapping[str, Any] = field(default_factory=dict)


class Kind(ABC, Generic[P]):
    """Kind of proposal; registered by the package that owns the proposed object."""

    name: ClassVar[str]
    model: type[P]
    deciders: ClassVar[frozenset[Right]]
    """Rights of which one, for the whole installation, is enough to decide; `rights` may require more."""
    audit: ClassVar[Mapping[str, str]]
    """Audit log action of each step."""
    revisable: ClassVar[bool] = False
    """Permission to change a rejected proposal and submit it again."""
    makers_reject: ClassVar[bool] = False
    """Permission of makers to reject, which withdraws the proposal; else a rejection by a maker is refused."""

    @abstractmethod
    def missing(self, pk: int) -> Exception:
        """Return the error for a missing proposal."""

    @abstractmethod
    def refusal(self, row: P, refused: Refused) -> Exception:
        """Return the error for a refused step, in the words of the kind."""

    @abstractmethod
    def approval(self, row: P, actor: str, now: datetime) -> Approval:
        """Return the requirements and effect of an approval at `now`; raise where it cannot be approved."""

    @abstractmethod
    def detail(self, row: P, step: Step) -> dict[str, Any]:
        """Return the audit log detail of a step."""

    def authorise(self, row: P, actor: str, action: str) -> None:
        """Raise where `actor` may not take that step; most callers have checked the right before."""

    def rights(self, row: P, now: datetime) -> Collection[Right]:
        """Return the rights of which one is enough to approve this proposal."""
        return self.deciders

    def audit_subject(self, row: P) -> str:
        """Return the audit log subject of a proposal."""
        return row.subject

    def lapsed(self, row: P, now: datetime) -> bool:
        """Return True if it is too late to decide."""
        return False

    def fingerprint(self, row: P) -> str:
        """Return the SHA-256 of everything that an approver agrees to."""
        return document_hash(canonical_json({"kind": row.kind, "subject": row.subject, "payload": row.payload}))


KINDS: Final[dict[str, Kind[Any]]] = {}


def register(kind: Kind[Any]) -> None:
    """Register a kind on import of its module; readers of all kinds import these modules first."""
    KINDS[kind.name] = kind
