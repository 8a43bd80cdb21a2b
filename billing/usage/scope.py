"""PURE: scope of a question about usage: teams, names, and the epochs to read."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final


@dataclass(frozen=True, slots=True)
class UsageScope:
    """Teams and names to select usage by: `teams` None is every team, an empty pattern matches everything."""

    teams: frozenset[str] | None = None
    cluster: str = ""
    namespace: str = ""
    consumer: str = ""
    accelerator: str = ""
    model: str = ""
    source: str = ""

    @property
    def has_devices(self) -> bool:
        return not (self.consumer or self.model or self.source)

    @property
    def has_tokens(self) -> bool:
        return not (self.cluster or self.namespace or self.accelerator)


def fits(pattern: str, name: str) -> bool:
    """Return True if a pattern matches a name; an empty pattern matches every name."""
    return not pattern or fnmatchcase(name, pattern)


@dataclass(frozen=True, slots=True)
class EpochFilter:
    """Rows with first <= epoch < before; of efficiency samples also those up to id `last_sample`, however late."""

    before: int = 2**31 - 1
    first: int = 0
    last_sample: int = 0


EVERYTHING: Final = UsageScope()
