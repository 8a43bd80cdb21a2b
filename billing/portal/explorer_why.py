"""Reasons why the cost of a range differs from the days before: effects of price, usage and efficiency, by name."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

from django.urls import reverse
from django.utils.translation import gettext_lazy as _

from billing.explorer.compared import ComparedLines
from billing.explorer.first_day import begun_after
from billing.explorer.labels import DIMENSION, Name, name_of, span_text
from billing.explorer.query import NAMELESS, Query
from billing.explorer.selectors import Explored, Explorer
from billing.portal.bridge import ORDER, OTHERS, ZERO, Bridge, Effect, bridge_of
from pricing.meters import LINE_KINDS, Role

BY: Final = ("team", "namespace", "job", "consumer", "model")
"""Dimensions by which a change can be split."""
NEXT: Final[Mapping[str, str]] = {
    "team": "namespace", "namespace": "job", "job": "kind", "consumer": "model", "model": "consumer"
}  # fmt: skip
SHOWN: Final = 10
USAGE: Final = ("usage", "begun", "ended")


@dataclass(frozen=True, slots=True)
class Change:
    """Change of the total by one name; `rest`: efficiency, interruptions, late usage and other adjustments.

    `new`: a team that began later, so that its earlier cost is unknown.
    """

    name: Name
    link: str
    before: Decimal
    after: Decimal
    price: Decimal
    usage: Decimal
    rest: Decimal
    new: bool = False

    @property
    def known_before(self) -> Decimal | None:
        return None if self.new else self.before

    @property
    def change(self) -> Decimal:
        return self.after - self.before

    @property
    def parts(self) -> list[tuple[Any, Decimal]]:
        """Return the causes of the change in words, if there is more than one."""
        named = ((_("By price"), self.price), (_("By usage"), self.usage), (_("Other"), self.rest))
        found = [(words, part) for words, part in named if part]
        return found if len(found) > 1 else []


@dataclass(frozen=True, slots=True)
class Step:
    """Effect, and the address of its details."""

    effect: Effect
    link: str


@dataclass(frozen=True)
class Why:
    found: Explored
    called: Mapping[str, str]
    by: str
    lines: ComparedLines
    new: Collection[str] = ()

    @classmethod
    def of(cls, found: Explored, reader: Explorer, by: str) -> "Why | None":
        """Build the reasons of a change; None if nothing is compared."""
        if found.compared is None or found.query.search or found.query.metric != "cost":
            return None
        lines = reader.compared_lines(found.query, by, shadow=found.shadow)
        if lines is None:
            return None
        new = begun_after(reader.teams, lines.before.first, reader.zone) if by == "team" else ()
        return cls(found, reader.called, by, lines, new)

    @cached_property
    def bridges(self) -> dict[str, Bridge]:
        names = dict.fromkeys((*self.lines.now, *self.lines.then))
        return {name: bridge_of(self.lines.then.get(name, ()), self.lines.now.get(name, ())) for name in names}

    @cached_property
    def bridge(self) -> Bridge:
        """Return the sum of all bridges, so that the steps are the sums of the rows."""
        sums: dict[str, Decimal] = defaultdict(lambda: ZERO)
        for one in self.bridges.values():
            for effect in one.effects:
                sums[effect.name] += effect.amount
        before, after = (sum((getattr(one, end) for one in self.bridges.values()), ZERO) for end in ("before", "after"))
        return Bridge(before, after, [Effect(name, sums[name]) for name in ORDER if sums[name]], [])

    @property
    def steps(self) -> list[Step]:
        """Return each effect with the address of its details."""
        return [Step(effect, self._effect_link(effect.name)) for effect in self.bridge.effects]

    @cached_property
    def changes(self) -> list[Change]:
        """Return the changes, the largest first."""
        found = [self._change(name, one) for name, one in self.bridges.items() if one.change]
        return sorted(found, key=lambda row: (-abs(row.change), row.name.text))

    @property
    def rows(self) -> list[Change]:
        return self.changes[:SHOWN]

    @property
    def left_out(self) -> tuple[int, Decimal]:
        """Return the number of changes without a row, and their sum."""
        others = self.changes[SHOWN:]
        return len(others), sum((row.change for row in others), ZERO)

    @property
    def choices(self) -> list[tuple[str, Any, bool]]:
        """Return the dimensions to split by: code, words, and True for the chosen one."""
        return [(code, DIMENSION[code], code == self.by) for code in BY]

    @property
    def by_text(self) -> Any:
        return DIMENSION[self.by]

    @property
    def spans(self) -> tuple[str, str]:
        return span_text(self.lines.before, self.found.today), span_text(self.lines.after, self.found.today)

    def _change(self, name: str, one: Bridge) -> Change:
        sums = {effect.name: effect.amount for effect in one.effects}
        price, usage = sums.pop("price", ZERO), sum((sums.pop(part, ZERO) for part in USAGE), ZERO)
        link = self._narrowed(name)
        return Change(
            name_of(self.by, name, self.called), link, one.before, one.after, price, usage, sum(sums.values(), ZERO),
            name in self.new,
        )  # fmt: skip

    def _narrowed(self, name: str) -> str:
        query = self.found.query.only(**{self.by: name or NAMELESS})
        following = NEXT[self.by] if NEXT[self.by] not in query.filter else "job"
        return f"?{replace(query, by=(following,)).address}"

    def _effect_link(self, effect: str) -> str:
        """Return the page behind an effect: the prices for price, else the jobs, or the kind of charge, that made it."""
        query: Query = replace(self.found.query, sort="-change")
        if effect == "price":
            return reverse("portal:prices")
        if effect in (*OTHERS, "late", "credit"):
            by = "job" if effect in LINE_KINDS and LINE_KINDS[effect].role is Role.ADJUSTMENT else "team"
            return f"?{replace(query.only(kind='note' if effect == 'credit' else effect), by=(by,)).address}"
        return f"?{replace(query, by=('job',)).address}"
