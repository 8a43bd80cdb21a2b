"""Gateways' tokens against the counters of inference servers: which models and days differ by more than the tolerance.

Compared is what was counted by servers, in both classes by themselves: input that lacks is not made good by output too
many. A day that the readings do not cover says nothing. The month decides about the close, for requests that run over
midnight are reported on one day and counted on two; single days help to find the cause.

Source: reference/FINOPS_PRACTICE.md, section 4 (gateway tokens against engine counters: at most 0.5 %).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from billing.usage.reconciliation import EngineDay
from metering.messages import Message

TOLERANCE: Final = Fraction(1, 200)


@dataclass(frozen=True, slots=True)
class Compared:
    """Sums of what was reported and what was counted."""

    gateway_input: int = 0
    gateway_output: int = 0
    engine_input: int = 0
    engine_output: int = 0

    def plus(self, day: EngineDay) -> "Compared":
        return Compared(
            self.gateway_input + day.gateway_input, self.gateway_output + day.gateway_output,
            self.engine_input + day.engine_input, self.engine_output + day.engine_output,
        )  # fmt: skip

    @property
    def difference(self) -> int:
        """Tokens of both classes that one side has and the other has not."""
        return abs(self.gateway_input - self.engine_input) + abs(self.gateway_output - self.engine_output)

    @property
    def exceeds(self) -> bool:
        """Whether a class differs by more than the tolerance of what was counted."""
        return self.lacking > 0 or self.surplus > 0

    @property
    def lacking(self) -> int:
        """Tokens that servers counted and gateways did not report; 0 where no class lacks more than the tolerance."""
        return self._side(1)

    @property
    def surplus(self) -> int:
        """Tokens that gateways reported and servers did not count; 0 where no class has more than the tolerance of them."""
        return self._side(-1)

    def _side(self, sign: int) -> int:
        classes = ((self.gateway_input, self.engine_input), (self.gateway_output, self.engine_output))
        found = [(reported, counted) for reported, counted in classes if sign * (counted - reported) > 0]
        beyond = any(_exceeds(reported, counted) for reported, counted in found)
        return sum(abs(counted - reported) for reported, counted in found) if beyond else 0

    @property
    def words(self) -> Message:
        """Both sides, for people."""
        return Message(
            "gateways reported %(i)s input and %(o)s output tokens, inference servers counted %(ei)s and %(eo)s",
            i=f"{self.gateway_input:,}", o=f"{self.gateway_output:,}", ei=f"{self.engine_input:,}",
            eo=f"{self.engine_output:,}",
        )


@dataclass
class ModelComparison:
    """One model in a period: the sum of the days that can be compared, and those of them that differ."""

    model: str
    total: Compared = field(default_factory=Compared)
    days: int = 0
    not_covered: int = 0
    differing: list[tuple[EngineDay, Compared]] = field(default_factory=list)


def compare(days: Iterable[EngineDay]) -> list[ModelComparison]:
    """One comparison for each model, in their order."""
    found: dict[str, ModelComparison] = {}
    for day in days:
        comparison = found.setdefault(day.model, ModelComparison(day.model))
        if not day.comparable:
            comparison.not_covered += 1
            continue
        comparison.days += 1
        comparison.total = comparison.total.plus(day)
        alone = Compared().plus(day)
        if alone.exceeds:
            comparison.differing.append((day, alone))
    return list(found.values())


def _exceeds(reported: int, counted: int) -> bool:
    return abs(reported - counted) > TOLERANCE * counted
