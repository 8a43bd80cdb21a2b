"""Sources of usage: each agent and gateway with the end of its reports, and the gaps of a month.

An agent reports the instant up to which it has sent everything (its watermark); a gateway does not, so only the last use
of its token and the last hour with usage are known.
"""

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from django.db.models import Max, QuerySet

from billing.invoices.models import BillingPeriod
from billing.tenancy.models import ApiToken
from billing.usage.gaps import BEHIND, metering_gaps
from billing.usage.grid import HOUR
from billing.usage.models import AgentDiagnostic, AgentWatermark, QuarantinedRecord
from billing.usage.reconciliation import SILENT_AFTER, SequenceGaps, sequence_gaps
from billing.usage.store.dimensions import names_reported
from billing.usage.store.hours import hours_used, last_used
from metering.intervals import Interval

LOOKED_BACK = timedelta(days=31)
RECENT = timedelta(hours=3)
"""Time before the newest usage within which most sources were used: a whole month is read only for the others."""
NOTES_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Agent:
    """Agent, or reader of logs: `seconds` since its last contact, and `lag` of its watermark in seconds.

    Elsewhere an agent that is behind counts as silent; here a silent agent differs from one that is only behind.
    """

    name: str
    source: str
    heard_at: datetime
    watermark: datetime
    seconds: int
    lag: int

    @property
    def silent(self) -> bool:
        return self.seconds > BEHIND.total_seconds()

    @property
    def behind(self) -> bool:
        return self.lag > BEHIND.total_seconds()


@dataclass(frozen=True, slots=True)
class Gateway:
    """Source of token usage; None if it was never in contact, or had no usage in the month before."""

    source: str
    heard_at: datetime | None
    seconds: int | None
    used_until: datetime | None
    missing: int
    behind = False  # a gateway does not report its backlog

    @property
    def silent(self) -> bool:
        return self.seconds is None or self.seconds > SILENT_AFTER.total_seconds()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Metering gap of the month that nobody filled; `allocations`: open at its beginning, 0 for an agent's own gap."""

    cluster: str
    subject: str
    start: datetime
    end: datetime
    allocations: int

    @property
    def seconds(self) -> int:
        return int((self.end - self.start).total_seconds())


@dataclass(frozen=True, slots=True)
class Silence:
    """Metering gaps of one cluster over the same time."""

    stretches: list[Stretch]

    @property
    def allocations(self) -> int:
        return sum(item.allocations for item in self.stretches)


@dataclass(frozen=True)
class Sources:
    """Reporters of usage as of `now`, and the gaps of one month."""

    period: BillingPeriod
    now: datetime

    @cached_property
    def agents(self) -> list[Agent]:
        rows = AgentWatermark.objects.order_by("cluster", "agent")
        return [
            Agent(
                row.agent, row.cluster, row.reported_at, row.watermark, self._age(row.reported_at), self._age(row.watermark)
            )
            for row in rows
        ]

    @cached_property
    def gateways(self) -> list[Gateway]:
        """Return sources with a token of their own or with usage; sources of an agent are in `agents`."""
        heard, used = last_reports(), last_used_by(self.now)
        missing: dict[str, int] = defaultdict(int)
        for gaps in self.numbered:
            missing[gaps.source] += gaps.missing
        known = {agent.source for agent in self.agents}
        found = []
        for source in sorted({*heard, *used, *missing} - known):
            at = heard.get(source)
            seconds = None if at is None else self._age(at)
            found.append(Gateway(source, at, seconds, used.get(source), missing[source]))
        return found

    @cached_property
    def stretches(self) -> list[Stretch]:
        """Return the metering gaps of the elapsed part of the month, which block its close."""
        until = min(self.period.end, self.now)
        if until <= self.period.start:
            return []
        passed = Interval(self.period.start, until)
        return [
            Stretch(gap.cluster, gap.subject, cut.start, cut.end, gap.allocations)
            for gap in metering_gaps(until, period_end=self.period.end)
            for piece in gap.unwatched
            if (cut := piece.overlap(passed))
        ]

    @property
    def silences(self) -> list[Silence]:
        """Return the gaps of each cluster and time together, in the place of the first of them."""
        together: dict[tuple[str, datetime, datetime], list[Stretch]] = defaultdict(list)
        for item in self.stretches:
            together[item.cluster, item.start, item.end].append(item)
        return [Silence(items) for items in together.values()]

    @cached_property
    def numbered(self) -> list[SequenceGaps]:
        """Return the numbers of records of the month that never arrived."""
        return sequence_gaps(self.period.window)

    @cached_property
    def notes(self) -> QuerySet[AgentDiagnostic]:
        """Return the diagnostics of agents on what they cannot meter, newest first."""
        return AgentDiagnostic.objects.order_by("-at", "-id")[:NOTES_SHOWN]

    @cached_property
    def quarantined(self) -> int:
        return QuarantinedRecord.objects.filter(status=QuarantinedRecord.Status.OPEN).count()

    def _age(self, at: datetime) -> int:
        return max(0, int((self.now - at).total_seconds()))


def last_reports() -> dict[str, datetime | None]:
    """Return the last use of the tokens made for one source, by source; None for never."""
    tokens = ApiToken.objects.filter(revoked_at=None, scopes__contains=["usage:write"]).exclude(source="")
    return dict(tokens.order_by("source").values_list("source").annotate(Max("last_used_at")))


def last_used_by(now: datetime) -> dict[str, datetime]:
    """Return the end of the last hour with usage of each source of tokens, within the month before `now`."""
    hours, earliest = hours_used(), now - LOOKED_BACK
    since = max(earliest, hours[1] - RECENT) if hours else earliest
    found = _last_hours(since)
    return found if found.keys() >= set(names_reported("source")) or since == earliest else _last_hours(earliest)


def _last_hours(since: datetime) -> dict[str, datetime]:
    found: dict[str, datetime] = {}
    for (source, _), last in last_used(since).items():
        found[source] = max(last + HOUR, found.get(source, last))
    return found
