"""Who reports usage, and whether they do: each agent and gateway, how far it has reported, and what is missing of a month.

An agent reports up to when it has sent everything (its watermark); a gateway reports nothing of the kind, so what is known
of it is when its token was used last and when the last hour with usage was.
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
"""Most sources have been used by then before the newest usage of all: only for the others a whole month is read."""
NOTES_SHOWN = 200


@dataclass(frozen=True, slots=True)
class Agent:
    """An agent, or a reader of logs: `seconds` since it was heard, and how far its watermark lies back.

    One that is behind counts as silent elsewhere; here those that are heard meanwhile are told from those that are not.
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
    """A source of token usage; None where it was never heard, or had no usage in the month before."""

    source: str
    heard_at: datetime | None
    seconds: int | None
    used_until: datetime | None
    missing: int
    behind = False  # it says nothing of what it has yet to report

    @property
    def silent(self) -> bool:
        return self.seconds is None or self.seconds > SILENT_AFTER.total_seconds()


@dataclass(frozen=True, slots=True)
class Stretch:
    """Time of the month that nobody watched and nobody filled; `allocations` open at its beginning, 0 for an agent's own."""

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
    """One time in which a cluster was not watched: all that stretches over it."""

    stretches: list[Stretch]

    @property
    def allocations(self) -> int:
        return sum(item.allocations for item in self.stretches)


@dataclass(frozen=True)
class Sources:
    """All that reports, as of `now`, and the gaps of one month."""

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
        """Sources with a token of their own or with usage; what an agent reports for has its own row above."""
        heard, used = last_reports(), _used_until(self.now)
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
        """What is not watched of the month, as far as it has passed: the gaps that block its close."""
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
        """The stretches of each cluster and time together, where the first of them stands."""
        together: dict[tuple[str, datetime, datetime], list[Stretch]] = defaultdict(list)
        for item in self.stretches:
            together[item.cluster, item.start, item.end].append(item)
        return [Silence(items) for items in together.values()]

    @cached_property
    def numbered(self) -> list[SequenceGaps]:
        """Numbers of records of the month that never arrived."""
        return sequence_gaps(self.period.window)

    @cached_property
    def notes(self) -> QuerySet[AgentDiagnostic]:
        """What agents say that they cannot meter, the newest first."""
        return AgentDiagnostic.objects.order_by("-at", "-id")[:NOTES_SHOWN]

    @cached_property
    def quarantined(self) -> int:
        return QuarantinedRecord.objects.filter(status=QuarantinedRecord.Status.OPEN).count()

    def _age(self, at: datetime) -> int:
        return max(0, int((self.now - at).total_seconds()))


def last_reports() -> dict[str, datetime | None]:
    """When the tokens that were made for one source were used last, by source; None for never."""
    tokens = ApiToken.objects.filter(revoked_at=None, scopes__contains=["usage:write"]).exclude(source="")
    return dict(tokens.order_by("source").values_list("source").annotate(Max("last_used_at")))


def _used_until(now: datetime) -> dict[str, datetime]:
    """The end of the last hour with usage of each source of tokens, of the month before `now`."""
    hours, earliest = hours_used(), now - LOOKED_BACK
    since = max(earliest, hours[1] - RECENT) if hours else earliest
    found = _last_hours(since)
    return found if found.keys() >= set(names_reported("source")) or since == earliest else _last_hours(earliest)


def _last_hours(since: datetime) -> dict[str, datetime]:
    found: dict[str, datetime] = {}
    for (source, _), last in last_used(since).items():
        found[source] = max(last + HOUR, found.get(source, last))
    return found
