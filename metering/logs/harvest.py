"""PURE: what a piece of a log gave: records, and the lines that could not be read."""

from dataclasses import dataclass, field
from typing import Any, Final

from metering.logs.mapping import Told

MAX_REJECTED_LINE: Final = 64 << 10


@dataclass(frozen=True)
class RejectedLine:
    """A line that could not be read: where it stood, why, and itself (shortened)."""

    file: str
    offset: int
    reason: str = ""
    line: bytes = field(default=b"", repr=False)

    def as_dict(self) -> dict[str, Any]:
        """For the reject file."""
        shown = self.line[:MAX_REJECTED_LINE].decode("utf-8", "backslashreplace").rstrip("\r\n")
        return {"file": self.file, "offset": self.offset, "reason": self.reason, "line": shown}


@dataclass
class Harvest:
    """What one piece of a file gave: `used` bytes of it, after which the chain of hashes stands at `chain`."""

    chain: bytes
    used: int = 0
    told: list[Told] = field(default_factory=list)
    rejected: list[RejectedLine] = field(default_factory=list)
    lines: int = 0
    without_usage: int = 0
