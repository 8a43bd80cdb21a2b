"""Commitments in forecasts: the change that bought hours make to a forecast at list price, and contracted minimums ahead.

The close uses bought hours up first, at their own price; the rest is at list.
The running month's lines already contain the whole commitment, used and unused (`billing.rating`): until the rest of it is
used up, further use adds nothing to a team's bill. A month to come adds its whole commitment, and its use is beyond it.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction

from billing.budgets.forecast import DAY, METHODS, Forecast, Progress, line
from billing.budgets.history import Past
from billing.budgets.scope import Scope
from billing.budgets.spending import Running, Spent
from billing.rating.reference_data import ReferenceData
from billing.rating.walk import Slice, cover_of
from billing.usage.scope import EpochFilter
from metering.intervals import Interval, billing_month, day_of, month_of, next_month
from pricing.commitments import KIND, CommitmentBook
from pricing.meters import MICROSECONDS_PER_HOUR
from pricing.money import EXACT, amount_places, round_part
from pricing.rate_card import GPU_HOURS
from pricing.rating import DIVISOR


@dataclass(frozen=True, slots=True)
class Bought:
    """Hours of one commitment that one month has left, for use on local days in [first, until).

    `price`: of such an hour; `list_price`: current, 0 if there is none; `to_come`: the month has not begun, nothing of it is
    spent yet.
    """

    team: str
    accelerator: str
    first: date
    until: date
    hours: Fraction
    price: Fraction
    list_price: Fraction
    to_come: bool

    def counts(self, scope: Scope) -> bool:
        """Return True if a scope pays for the hours that stay unused: their line has an accelerator and no place."""
        return _covers_unused(scope, self.team, self.accelerator)


def _covers_unused(scope: Scope, team: str, accelerator: str) -> bool:
    return scope.covers(Spent(team, KIND, "", "", "", accelerator, accelerator, Fraction(0)))


def contracted_ahead(scope: Scope, period: Interval, book: CommitmentBook, *, now: datetime, zone: str) -> Decimal:
    """Return the contracted minimum of the months of `period` after that of `now`, used or not, as far as `scope` covers it.

    For a commitment to 100 GPU-hours a month at 8.00: 1,600.00 in a quarter's first month. Like the line of unused hours
    it has an accelerator and no place: a budget of one cluster or namespace has none of it. Rounded as that line is.
    """
    month, total = max(next_month(month_of(now, zone)), month_of(period.start, zone)), Decimal("0.00")
    while (window := billing_month(month, zone)).start < period.end:
        for one in book.of_month(window):
            if _covers_unused(scope, one.team, one.accelerator):
                total += round_part(EXACT.multiply(one.bought(window), one.price), DIVISOR[GPU_HOURS], amount_places())
        month = next_month(month)
    return total


def bought_ahead(
    until: datetime, reference_data: ReferenceData, teams: Collection[str], *, now: datetime, zone: str
) -> list[Bought]:
    """Return the hours left of every commitment of some teams in the months from that of `now` to `until`, in time order.

    The running month's usage is read only if one of the teams has a commitment in it.
    """
    reference_data = replace(
        reference_data,
        commitments=CommitmentBook(one for one in reference_data.commitments.commitments if one.team in teams),
    )
    found, month = list[Bought](), month_of(now, zone)
    while (window := billing_month(month, zone)).start < until:
        to_come = window.start > now
        left = {} if to_come else _left(reference_data, window, month)
        for one in reference_data.commitments.of_month(window):
            part, listed = one.part_of(window), reference_data.card.list_price(one.accelerator, now) or 0
            hours = Fraction(one.bought(window) if to_come else left.get(one.name, 0)) / MICROSECONDS_PER_HOUR
            if part is not None:
                first, last = (day_of(at, zone) for at in (part.start, part.end))
                found.append(
                    Bought(one.team, one.accelerator, first, last, hours, Fraction(one.price), Fraction(listed), to_come)
                )
        month = next_month(month)
    return found


def _left(reference_data: ReferenceData, window: Interval, month: str) -> Mapping[str, Decimal]:
    """Return the device-microseconds by commitment that a close of the running month now would bill as unused."""
    part = Slice.of(reference_data, window, month, EpochFilter())
    return {item.commitment.name: item.device_us for item in cover_of(part, reference_data).unused}


@dataclass(frozen=True, slots=True)
class _Use:
    """Expected use of one accelerator by one team on the remaining days, at current list price.

    `team`: of the whole team, `scope`: of the scope, by day. `bought`: hours that pay for it, in the order of their use.
    `dearer`: price of a day as a multiple of the current price, where it differs.
    """

    days: list[date]
    team: list[Fraction]
    scope: list[Fraction]
    bought: list[Bought]
    dearer: Mapping[date, Fraction]

    def change(self, share: Fraction, scope: Scope) -> Fraction:
        """Return the change in cost that bought hours make if `share` of the expected use comes."""
        left = [item.hours for item in self.bought]
        change = sum((item.hours * item.price for item in self.bought if item.to_come and item.counts(scope)), Fraction(0))
        for day, of_team, of_scope in zip(self.days, self.team, self.scope, strict=True):
            expected = share * of_team
            for number, item in enumerate(self.bought):
                if item.list_price and item.first <= day < item.until and expected > 0:
                    used = min(expected / item.list_price, left[number])
                    left[number] -= used
                    expected -= used * item.list_price
                    # a scope takes the bought hours in proportion to its part of the team's use
                    own = used * of_scope / of_team
                    change -= own * item.list_price * self.dearer.get(day, Fraction(1))
                    # a scope that counts unused hours has paid for these already
                    change += Fraction(0) if item.counts(scope) else own * item.price
        return change


def as_billed(
    answer: Forecast, progress: Progress, scope: Scope, bought: Iterable[Bought], past: Past, jobs: Iterable[Running],
    by_day: Callable[[list[Running]], Mapping[date, Fraction]], dearer: Callable[[str], Mapping[date, Fraction]],
) -> Forecast:  # fmt: skip
    """Convert a forecast of a scope at list price to what the close will bill.

    Of 124 hours at 10.00 expected in a month of which 100 are bought at 8.00 and 40 are used, 60 hours of the 84 to come
    cost nothing more: the forecast at list price, 1240.00, becomes 640.00, beside 400.00 of bought hours that are in what is
    spent and in no list price. A scope of one namespace has no unused hours: it pays 8.00 for each of the 60.

    `jobs`: those that run, of all teams; `by_day`: expected cost of some of them on each day; `dearer`: as in
    Progress, of whole devices of an accelerator.
    """
    running, uses, groups = list(jobs), list[_Use](), defaultdict[tuple[str, str], list[Bought]](list)
    for item in bought:
        if item.team in scope.teams:
            groups[item.team, item.accelerator].append(item)
    whole = Scope(scope.teams)
    for (team, accelerator), items in groups.items():
        own = [job for job in running if (job.team, job.sku) == (team, accelerator)]
        of_team, of_scope = (
            _expected(answer.method, progress, past.of_devices(seen, team, accelerator),
                      by_day([job for job in own if seen.covers(job)])) for seen in (whole, scope)
        )  # fmt: skip
        items.sort(key=lambda item: item.until)
        uses.append(_Use([day for day, _ in progress.rest()], of_team, of_scope, items, dearer(accelerator)))
    to_come = answer.p50 - progress.spent

    def billed(end: Fraction) -> Fraction:
        share = (end - progress.spent) / to_come if to_come else Fraction(1)
        return sum((use.change(share, scope) for use in uses), end)

    low, high = (None if end is None else billed(end) for end in (answer.p10, answer.p90))
    return replace(answer, p50=billed(answer.p50), p10=low, p90=high)


def _expected(
    method: str, progress: Progress, use: Mapping[date, Fraction], encumbered: Mapping[date, Fraction]
) -> list[Fraction]:
    """Return a part of a scope's spending on each remaining day by the method of the whole, at current prices.

    A part for which the method has too little data continues at its mean rate.
    """
    today = progress.start + int(progress.elapsed) * DAY
    spent = sum((amount for day, amount in use.items() if progress.start <= day <= today), Fraction(0))
    own = replace(progress, spent=spent, encumbered=encumbered, dearer={})
    complete = {day: amount for day, amount in use.items() if day < today}
    end = METHODS[method](own, complete)
    if end is None:
        end = line(own, complete) or spent
    rest = [left for _, left in own.rest()]
    return [(end - spent) * left / sum(rest, Fraction(0)) for left in rest]
