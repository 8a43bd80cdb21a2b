"""What an ingest answers: counts, and each record that was not taken with the reason."""

from dataclasses import dataclass, field

from metering.messages import Message


@dataclass(frozen=True, slots=True)
class Reporter:
    """Who reports through which door. `source` limits a token to one gateway or cluster; `future_limit_s` is how far
    ahead of the clock an instant may lie, None where an operator imports a file knowingly.
    """

    name: str
    door: str
    source: str = ""
    future_limit_s: int | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A record that went to quarantine, by its place in the batch.

    `same_as`: what makes two of them the same, where that is not the record itself: an agent reports a running pod again
    and again, each time seen a little longer.
    """

    index: int
    key: str
    error: Message
    reason: str
    raw: bytes
    same_as: bytes = b""


@dataclass(slots=True)
class IngestOutcome:
    """Every record of a batch is counted in exactly one of accepted, duplicates, conflicts or rejected."""

    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    refusals: list[Refusal] = field(default_factory=list)

    def answer(self) -> dict[str, object]:
        """The body of the contract. Conflicts are counted and, like rejected records, named."""
        return {
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "conflicts": self.conflicts,
            "rejected": [
                {"index": refusal.index, "key": refusal.key, "error": str(refusal.error)}
                for refusal in sorted(self.refusals, key=lambda refusal: refusal.index)
                if refusal.reason != "conflict"
            ],
        }
