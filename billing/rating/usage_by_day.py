"""Reading: tokens and device time by day, each with the team that owned the consumer or namespace at that time.

Read from the same roll-up as previews, budgets and invoices, so the figures agree with theirs; an hour that a day or a
change of owner cuts is read from the events.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from decimal import Decimal
from zoneinfo import ZoneInfo

from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.rating.walk import Slice, device_usage, stretches, token_usage
from billing.usage.selectors import EpochFilter, last_close_seq
from billing.usage.token_sums import COUNTS
from metering.intervals import Interval

MICROSECONDS = 1_000_000


@dataclass(frozen=True, slots=True)
class DayOfTokens:
    """Tokens of one team and model on a local day; `team` None: nobody owned the consumer then."""

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
    """Tokens per local day, team and model. With `teams` only theirs; without, also what nobody owns."""
    reference_data, part = _slice(window)
    midnights = _midnights(window, zone)
    days = _days(part.tokens, midnights, zone)
    sums: dict[tuple[str, str | None, str], dict[str, int]] = defaultdict(lambda: dict.fromkeys(COUNTS, 0))
    for usage, row in token_usage(part, reference_data, cuts=midnights, priced=False):
        team = usage.team or None
        if (teams is not None and team not in teams) or (model is not None and row.model != model):
            continue
        total = sums[days[row.piece], team, row.model]
        for name in COUNTS:
            total[name] += getattr(row, name)
    return [DayOfTokens(*key, counts) for key, counts in sorted(sums.items(), key=lambda item: _order(item[0]))]


def devices_by_day(window: Interval, zone: str, teams: Collection[str] | None = None) -> list[DayOfDevices]:
    """Device time per local day, team and accelerator. With `teams` only theirs; without, also what nobody owns."""
    reference_data, part = _slice(window)
    midnights = _midnights(window, zone)
    days = _days(part.devices, midnights, zone)
    sums: dict[tuple[str, str | None, str], Decimal] = defaultdict(Decimal)
    for usage, row in device_usage(part, reference_data, cuts=midnights):
        team = usage.team or None
        if teams is None or team in teams:
            sums[days[row.piece], team, row.accelerator] += row.device_us
    return [DayOfDevices(*key, us / MICROSECONDS) for key, us in sorted(sums.items(), key=lambda item: _order(item[0]))]


def _order(key: tuple[str, str | None, str]) -> tuple[str, str, str]:
    return key[0], key[1] or "", key[2]


def _slice(window: Interval) -> tuple[ReferenceData, Slice]:
    """All usage of the window, with its owners, as known now."""
    reference_data = reference_data_known(last_close_seq() + 1)
    return reference_data, Slice.of(reference_data, window, "", EpochFilter())


def _days(pieces: Sequence[Interval], midnights: Collection[datetime], zone: str) -> list[str]:
    """The local day of each stretch that the midnights cut the pieces into."""
    return [time.start.astimezone(ZoneInfo(zone)).date().isoformat() for time, _ in stretches(pieces, midnights)]


def _midnights(window: Interval, zone: str) -> set[datetime]:
    return set(_each_midnight(window, ZoneInfo(zone)))


def _each_midnight(window: Interval, zone: ZoneInfo) -> Iterator[datetime]:
    day = window.start.astimezone(zone).date() + timedelta(days=1)
    while (midnight := datetime.combine(day, time(), zone).astimezone(UTC)) < window.end:
        yield midnight
        day += timedelta(days=1)
