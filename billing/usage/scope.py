"""PURE: whose usage, and of what, somebody asks about."""

from dataclasses import dataclass
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
        """Whether usage of devices can be in it."""
        return not (self.consumer or self.model or self.source)

    @property
    def has_tokens(self) -> bool:
        """Whether usage of tokens can be in it."""
        return not (self.cluster or self.namespace or self.accelerator)


EVERYTHING: Final = UsageScope()
