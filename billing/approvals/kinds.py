"""What distinguishes one kind of proposal from another: who decides, what an approval does, and the words for a refusal."""

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
    """A step that is refused: who asked for which step of what, having seen which revision, about what."""

    why: Why
    action: str
    actor: str
    revision: int | None = None
    about: str = ""


@dataclass(frozen=True, slots=True)
class Approval:
    """What an approval takes (`persons`), what it does then, and what is kept of it (`outcome`)."""

    effect: Callable[[], object] = lambda: None
    persons: int = 1
    outcome: Mapping[str, Any] = field(default_factory=dict)


class Kind(ABC, Generic[P]):
    """One kind of proposal; the package that owns what is proposed has one, and registers it."""

    name: ClassVar[str]
    model: type[P]
    deciders: ClassVar[frozenset[Right]]
    """People with one of these rights everywhere may decide; `rights` may ask for more."""
    audit: ClassVar[Mapping[str, str]]
    """What the audit log calls each step."""
    revisable: ClassVar[bool] = False
    """Whether what was sent back can be changed and submitted again."""
    makers_reject: ClassVar[bool] = False
    """Whether a maker who turns it down withdraws it; else that is refused."""

    @abstractmethod
    def missing(self, pk: int) -> Exception:
        """The refusal where there is no proposal of that id."""

    @abstractmethod
    def refusal(self, row: P, refused: Refused) -> Exception:
        """The refusal of a step, in the words of the kind."""

    @abstractmethod
    def approval(self, row: P, actor: str, now: datetime) -> Approval:
        """What an approval at `now` takes and does; raises where it cannot be approved."""

    @abstractmethod
    def detail(self, row: P, step: Step) -> dict[str, Any]:
        """What the audit log keeps of a step."""

    def authorise(self, row: P, actor: str, action: str) -> None:
        """Raise where `actor` may not take that step; most callers have asked for the right before."""

    def rights(self, row: P, now: datetime) -> Collection[Right]:
        """The rights of which one is enough to approve this one."""
        return self.deciders

    def audit_subject(self, row: P) -> str:
        """What the audit log calls it."""
        return row.subject

    def lapsed(self, row: P, now: datetime) -> bool:
        """Whether it is too late to decide."""
        return False

    def fingerprint(self, row: P) -> str:
        """SHA-256 of everything that an approver agrees to."""
        return document_hash(canonical_json({"kind": row.kind, "subject": row.subject, "payload": row.payload}))


KINDS: Final[dict[str, Kind[Any]]] = {}


def register(kind: Kind[Any]) -> None:
    """Make a kind known, as its module does when it is imported; who looks at all of them imports these modules before."""
    KINDS[kind.name] = kind
