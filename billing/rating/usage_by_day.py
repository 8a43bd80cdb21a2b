"""Daily tokens and device time, each with the team that owned the consumer or namespace at that time.

Read from the same roll-up as previews, budgets and invoices, so the figures agree with theirs; an hour that a day or a
change of owner cuts is read from the events.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from operator import itemgetter

from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.rating.walk import Slice, device_usage, stretches, token_usage
from billing.usage.scope import EpochFilter
from billing.usage.selectors import last_close_seq
from billing.usage.store.sums import COUNTS
from metering.intervals import Interval, day_of, midnights

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class DayOfTokens:
    """Tokens of one team and model on a local day; `team` is None if nobody owned the consumer then."""

    day: str
    team: str | None
    model: str
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class DayOfDevices:
    """Device-seconds of one team and accelerator on a local day, exact."""

    day: str
    team: str | None
    accelerator: str
    device_seconds: Decimal


def tokens_by_day(
    window: Interval, zone: str, teams: Collection[str] | None = None, model: str | None = None
) -> list[DayOfTokens]:
    """Return tokens per local day, team and model, for `teams` only; without `teams`, also unowned tokens."""
    reference_data, part, midnights = _slice(window, zone)
    days = _days(part.tokens, midnights, zone)
    sums: dict[tuple[str, str, str], dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for usage, row in token_usage(part, reference_data, cuts=midnights, priced=False):
        if (teams is None or usage.team in teams) and model in (None, row.model):
            total = sums[days[row.piece], usage.team, row.model]
            for name in COUNTS:
                total[name] += getattr(row, name)
    found = sorted(sums.items(), key=itemgetter(0))
    return [DayOfTokens(day, team or None, name, counts) for (day, team, name), counts in found]


def devices_by_day(window: Interval, zone: str, teams: Collection[str] | None = None) -> list[DayOfDevices]:
    """Return device time per local day, team and accelerator, for `teams` only; without `teams`, also unowned time."""
    reference_data, part, midnights = _slice(window, zone)
    days = _days(part.devices, midnights, zone)
    sums: dict[tuple[str, str, str], Decimal] = defaultdict(Decimal)
    for usage, row in device_usage(part, reference_data, cuts=midnights):
        if teams is None or usage.team in teams:
            sums[days[row.piece], usage.team, row.accelerator] += row.device_us
    return [DayOfDevices(day, team or None, name, us / MICROSECONDS) for (day, team, name), us in sorted(sums.items())]


def _slice(window: Interval, zone: str) -> tuple[ReferenceData, Slice, list[datetime]]:
    """Return the reference data, a slice of all usage of the window as known now, and the local midnights that cut it."""
    reference_data = reference_data_known(last_close_seq() + 1)
    cuts = midnights(window.start, window.end, zone)
    return reference_data, Slice.of(reference_data, window, "", EpochFilter()), cuts


def _days(pieces: Sequence[Interval], cuts: Collection[datetime], zone: str) -> list[str]:
    """Return the local day of each stretch that the midnights cut the pieces into."""
    return [day_of(time.start, zone).isoformat() for time, _ in stretches(pieces, cuts)]
