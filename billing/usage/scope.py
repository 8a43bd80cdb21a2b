"""PURE: whose usage, of what, and as known when, somebody asks about."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final


@dataclass(frozen=True, slots=True)
class UsageScope:
    """Whose usage, and of what: `teams` None is everybody, an empty pattern is everything."""

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
    """Whether a pattern asks for a name; an empty one asks for all."""
    return not pattern or fnmatchcase(name, pattern)


@dataclass(frozen=True, slots=True)
class EpochFilter:
    """Rows with first <= epoch < before; of efficiency samples also those up to the `last_sample`-th, however late."""

    before: int = 2**31 - 1
    first: int = 0
    last_sample: int = 0


EVERYTHING: Final = UsageScope()
