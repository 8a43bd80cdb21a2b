"""What teams committed to for a month, and how much of it they used: from the lines that bill it, which no page adds to."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.invoices.line_rollups import StatementLine
from billing.portal.statements import MonthStatements
from billing.rates.selectors import commitment_book, rate_card
from billing.tenancy.models import Team
from metering.intervals import Interval
from pricing.commitments import UNUSED, USED, Commitment, Pace, pace_of
from pricing.money import round_amount
from pricing.rate_card import GPU_HOURS, RateCard
from pricing.rating import DIVISOR

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class CommitmentUse:
    """A commitment in one month: GPU-hours bought, used and left, what each part costs, and hours beyond it on demand."""

    team: Team
    commitment: Commitment
    bought: Decimal
    used: Decimal
    unused: Decimal
    used_amount: Decimal
    unused_amount: Decimal
    beyond: Decimal
    unused_at_list: Decimal | None
    pace: Pace | None

    @property
    def share(self) -> Decimal | None:
        """Used over bought hours; None where nothing was bought."""
        return self.used / self.bought if self.bought else None

    @property
    def amount(self) -> Decimal:
        """What is paid for the month, used or not."""
        return self.used_amount + self.unused_amount


def commitment_uses(
    month: MonthStatements, teams: Iterable[Team], now: datetime, *, stale: bool = False
) -> list[CommitmentUse]:
    """The commitments of some teams that are in force in a month, by team, accelerator and start.

    `unused_at_list`: what the unused hours would have cost at the list price in force at the end of what is known, None
    where the accelerator has none. `pace`: where an open month is heading for, as of `now`; None where it is `stale`.
    Usage that came late is in the month that billed it and is left out here.
    """
    of_team: dict[str, list[StatementLine]] = defaultdict(list)
    for statement in month.statements:
        of_team[statement.team.code] += [line for line in statement.lines if not line.key.correction]
    known = {team.code: team for team in teams}
    window = Interval(month.period.start, month.period.end)
    card = rate_card()
    return [
        _use(known[one.team], one, window, of_team[one.team], card, now, paced=not stale)
        for one in commitment_book().of_month(window)
        if one.team in known
    ]


def _use(
    team: Team, one: Commitment, window: Interval, lines: list[StatementLine], card: RateCard, now: datetime, *, paced: bool
) -> CommitmentUse:
    of_it = [line for line in lines if line.key.what.bought and line.key.policy == one.name]
    parts = {reason: [line for line in of_it if line.key.reason == reason] for reason in (USED, UNUSED)}
    beyond = [
        line for line in lines
        if line.key.what.on_demand and (line.key.accelerator, line.key.unit) == (one.accelerator, GPU_HOURS)
    ]  # fmt: skip
    bought, used, unused = one.bought(window) / DIVISOR[GPU_HOURS], _hours(parts[USED]), _hours(parts[UNUSED])
    part = one.part_of(window)
    return CommitmentUse(
        team, one, bought=bought, used=used, unused=unused, used_amount=_amount(parts[USED]),
        unused_amount=_amount(parts[UNUSED]), beyond=_hours(beyond), unused_at_list=_at_list(unused, one, window, card, now),
        pace=pace_of(bought=bought, held=used + _hours(beyond), part=part, now=now) if part and paced else None,
    )  # fmt: skip


def _at_list(hours: Decimal, one: Commitment, window: Interval, card: RateCard, now: datetime) -> Decimal | None:
    at = min(max(now, window.start), window.end - timedelta(microseconds=1))
    price = card.list_price(one.accelerator, at)
    return None if price is None else round_amount(Fraction(hours) * Fraction(price))


def _hours(lines: Iterable[StatementLine]) -> Decimal:
    return sum((line.quantity for line in lines), ZERO)


def _amount(lines: Iterable[StatementLine]) -> Decimal:
    return sum((line.amount for line in lines), Decimal("0.00"))
