"""Commitments of teams for a month, and how much of them was used, read from the lines that bill the month."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.invoices.line_rollups import StatementLine
from billing.invoices.selectors import known_before
from billing.portal.statements import MonthStatements
from billing.rates.selectors import commitment_book, rate_card
from billing.rating.readings import NamesByTeam
from billing.rating.selectors import reference_data_known
from billing.rating.walk import Slice, carried_usage, cover_of
from billing.tenancy.models import Team
from billing.usage.scope import EpochFilter
from metering.intervals import Interval
from pricing.commitments import HOURS_PLACES, UNUSED, USED, Commitment, Pace, pace_of
from pricing.meters import Explanation
from pricing.money import round_amount, round_to
from pricing.rate_card import GPU_HOURS, RateCard
from pricing.rating import DIVISOR, GpuUsage

ZERO = Decimal(0)


@dataclass(frozen=True, slots=True)
class CommitmentUse:
    """Commitment in one month: GPU-hours bought, used and unused, the cost of each part, and on-demand hours beyond it."""

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
        """Return used over bought hours; None if none were bought."""
        return self.used / self.bought if self.bought else None

    @property
    def amount(self) -> Decimal:
        """Return the amount paid for the month, used or not."""
        return self.used_amount + self.unused_amount


def commitment_uses(
    month: MonthStatements, teams: Iterable[Team], now: datetime, *, stale: bool = False
) -> list[CommitmentUse]:
    """Return the commitments of some teams that are in force in a month, by team, accelerator and start.

    `unused_at_list`: cost of the unused hours at the list price in force at the end of the known time, None
    if the accelerator has none. `pace`: projection of an open month, as of `now`; None if it is `stale`, or
    if another commitment pays at the same time.
    Late usage belongs to the month that billed it and is left out here.
    """
    of_team: dict[str, list[StatementLine]] = defaultdict(list)
    for statement in month.statements:
        of_team[statement.team.code] += [line for line in statement.lines if not line.key.correction]
    known = {team.code: team for team in teams}
    window = month.period.window
    card, book = rate_card(), commitment_book()
    return [
        _use(known[one.team], one, month, of_team[one.team], card, now, paced=not stale and not book.beside(one, window))
        for one in book.of_month(window)
        if one.team in known
    ]


def _use(
    team: Team, one: Commitment, month: MonthStatements, lines: list[StatementLine], card: RateCard, now: datetime, *,
    paced: bool,
) -> CommitmentUse:  # fmt: skip
    window = month.period.window
    of_it = [line for line in lines if line.key.what.bought and line.key.policy == one.name]
    parts = {reason: [line for line in of_it if line.key.reason == reason] for reason in (USED, UNUSED)}
    bought, used, unused = one.bought(window) / DIVISOR[GPU_HOURS], _hours(parts[USED]), _hours(parts[UNUSED])
    part, beyond = one.part_of(window), _beyond(one, month, lines)
    return CommitmentUse(
        team, one, bought=bought, used=used, unused=unused, used_amount=_amount(parts[USED]),
        unused_amount=_amount(parts[UNUSED]), beyond=beyond, unused_at_list=_at_list(unused, one, window, card, now),
        pace=pace_of(bought=bought, held=used + beyond, part=part, now=now) if part and paced else None,
    )  # fmt: skip


def _beyond(one: Commitment, month: MonthStatements, lines: list[StatementLine]) -> Decimal:
    """Return on-demand GPU-hours while a commitment was in force, without waived usage.

    Lines do not have the time of their hours, so a month in which the commitment begins or ends is read from usage.
    """
    period = month.period
    window = period.window
    of_it = [line for line in lines if line.key.accelerator == one.accelerator and line.key.unit == GPU_HOURS
             and line.key.sku == one.accelerator]  # fmt: skip
    listed = [line for line in of_it if line.key.what.on_demand]
    if not listed or one.part_of(window) == window:
        return _hours(listed) - _hours(line for line in of_it if line.key.what.explained_by is Explanation.ENDS)
    before = known_before(period)
    known = month.reference_data or reference_data_known(before)
    part = Slice.of(known, window, period.month, EpochFilter(before=before))
    names = NamesByTeam(known).namespaces({one.team})

    def held(usages: Iterable[GpuUsage]) -> Decimal:
        """Sum the usage that the commitment might have paid for."""
        return sum((
            usage.device_us for usage in usages
            if any(paying.name == one.name for paying in known.commitments.for_usage(usage, known.card))
        ), ZERO)  # fmt: skip

    carried = (item.usage for item, _ in carried_usage(part, known, namespaces=names))
    beyond = held(cover_of(part, known, names).rest) - held(carried)
    return round_to(Fraction(beyond) / DIVISOR[GPU_HOURS], HOURS_PLACES)


def _at_list(hours: Decimal, one: Commitment, window: Interval, card: RateCard, now: datetime) -> Decimal | None:
    at = min(max(now, window.start), window.end - timedelta(microseconds=1))
    price = card.list_price(one.accelerator, at)
    return None if price is None else round_amount(Fraction(hours) * Fraction(price))


def _hours(lines: Iterable[StatementLine]) -> Decimal:
    return sum((line.quantity for line in lines), ZERO)


def _amount(lines: Iterable[StatementLine]) -> Decimal:
    return sum((line.amount for line in lines), Decimal("0.00"))
