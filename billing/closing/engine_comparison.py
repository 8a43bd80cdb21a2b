"""Comparison of gateways' tokens with the counters of inference servers, by model and day.

Both classes are compared by themselves, on what servers counted: too much output does not compensate for missing input.
A day that the readings do not cover is not compared. The month decides about the close, since requests that run over
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
    """Sums of reported and of counted tokens."""

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
        """Return the tokens of both classes that only one side has."""
        return abs(self.gateway_input - self.engine_input) + abs(self.gateway_output - self.engine_output)

    @property
    def exceeds(self) -> bool:
        """Return True if a class differs by more than the tolerance of what was counted."""
        return self.lacking > 0 or self.surplus > 0

    @property
    def lacking(self) -> int:
        """Return tokens that servers counted and gateways did not report; 0 if no class lacks more than the tolerance."""
        return self._side(1)

    @property
    def surplus(self) -> int:
        """Return tokens that gateways reported and servers did not count; 0 if no class exceeds the tolerance."""
        return self._side(-1)

    def _side(self, sign: int) -> int:
        classes = ((self.gateway_input, self.engine_input), (self.gateway_output, self.engine_output))
        found = [(reported, counted) for reported, counted in classes if sign * (counted - reported) > 0]
        # one class beyond the tolerance shows all tokens of its side
        beyond = any(_exceeds(reported, counted) for reported, counted in found)
        return sum(abs(counted - reported) for reported, counted in found) if beyond else 0

    @property
    def words(self) -> Message:
        """Return both sides, for people."""
        return Message(
            "gateways reported %(i)s input and %(o)s output tokens, inference servers counted %(ei)s and %(eo)s",
            i=f"{self.gateway_input:,}", o=f"{self.gateway_output:,}", ei=f"{self.engine_input:,}",
            eo=f"{self.engine_output:,}",
        )


@dataclass
class ModelComparison:
    """Comparison of one model in a period: the sum of comparable days, and those of them that differ."""

    model: str
    total: Compared = field(default_factory=Compared)
    days: int = 0
    not_covered: int = 0
    differing: list[tuple[EngineDay, Compared]] = field(default_factory=list)


def compare(days: Iterable[EngineDay]) -> list[ModelComparison]:
    """Compare each model, in the order of first appearance."""
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
