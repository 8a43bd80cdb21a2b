"""Board of a month: its lines under the filters, their comparison, use by hour of the week, and wasteful jobs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from glob import escape
from typing import Any

from django.db.models import Q, QuerySet

from billing.budgets.expected import Expected, expected_of
from billing.budgets.scope import Scope
from billing.closing.snapshots import beside_of, compared_of, snapshot_shown
from billing.closing.usage_profile import DaysBefore, WeekUse, named_by, of_hours, same_moment
from billing.invoices.line_rollups import Charged, WastingJob, invoiced_total, judged_wasting, most_wasteful, wasting_jobs
from billing.invoices.line_rollups import statement_line as previewed
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import known_before
from billing.portal.bridge import Bridge, bridge_of
from billing.portal.filters import Filters
from billing.portal.months import period_shown
from billing.portal.splits import BY_JOB, Piece, Seen, SplitRow, by_job, part_lines, split, whole_lines
from billing.portal.statements import AnyVerdict, MonthFacets, MonthStatements, month_facets, month_statements
from billing.portal.usage_heatmap import Heat, added_up, heat_of, hours_of
from billing.rates.selectors import slices_priced_on
from billing.rating.freshness import Freshness, freshness
from billing.rating.models import RatingSnapshot
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_known
from billing.tenancy.models import BillingSetup, Team
from billing.tenancy.showback import billing_modes
from billing.usage.gpu_time_by_job import WeekHours, devices_by_week_hour, queues_of, tokens_by_week_hour
from billing.usage.scope import UsageScope
from metering.intervals import Interval, previous_month
from pricing.meters import MICROSECONDS_PER_HOUR

ZERO = Decimal("0.00")
JOBS_OF = 2_000
"""Most lines of devices that are shared out over their jobs for a page; a file has no limit."""
OFFERED = 200
"""Most names that a filter offers as choices; above it the name is typed."""


class TooManyJobsError(ValueError):
    """Lines too numerous to share out over their jobs while a user waits."""


@dataclass(frozen=True)
class Board:
    """Board of one month of `teams` under `filters`, as of `now`. `patient`: for a file, which may take longer than a page.

    `everybody`: True if `teams` are all teams of the installation.
    """

    period: BillingPeriod
    setup: BillingSetup
    teams: QuerySet[Team]
    filters: Filters
    month: MonthFacets
    now: datetime
    patient: bool = False
    everybody: bool = False

    @property
    def shadow(self) -> bool:
        """Return True if everything here is showback: shown, and nobody charged."""
        return self.month.shadow

    @cached_property
    def whole(self) -> MonthStatements:
        """Return the month with all of its lines."""
        return self.month.whole or month_statements(self.period, self.teams)

    @cached_property
    def sums(self) -> list[Charged]:
        """Return the lines under the filters, as sums; filters of jobs are not applied yet."""
        return self.filters.kept(self.month.lines)

    @cached_property
    def pieces(self) -> list[Piece]:
        """Return the lines under the filters, or their parts by job under a filter of jobs.  Raises TooManyJobsError."""
        return self.pieces_by_job if self.filters.of_jobs else whole_lines(self.sums)

    @cached_property
    def pieces_by_job(self) -> list[Piece]:
        """Return the lines shared out over their jobs, under the filters.  Raises TooManyJobsError."""
        if not self.sums:
            return []
        if not self.patient and sum(not line.key.counts_tokens for line in self.sums) > JOBS_OF:
            raise TooManyJobsError
        shown = [item for item in self.whole.statements if item.shadow == self.shadow]
        lines = self.filters.kept(line for item in shown for line in item.lines)
        seen = Seen(self.period.window, self.period.month, known_before(self.period), self.reference_data)
        pieces = by_job(lines, seen, self.verdicts)
        return [piece for piece in pieces if self.filters.keeps_job(piece.job, piece.queue)]

    @cached_property
    def reference_data(self) -> ReferenceData:
        """Return the reference data that the month is rated by."""
        return self.month.reference_data or reference_data_known(known_before(self.period))

    @cached_property
    def total(self) -> Decimal:
        return sum((piece.amount for piece in self.pieces), ZERO)

    @cached_property
    def apart(self) -> Decimal:
        """Return the amount of the other mode, charged or showback, under the filters; zero under a filter of jobs."""
        other = self.month.charged if self.shadow else self.month.shown_only
        found = [] if self.filters.of_jobs else self.filters.kept(other)
        return sum((line.amount for line in found), ZERO)

    @property
    def running(self) -> bool:
        """Return True if the month is open and `now` lies within it."""
        return self.month.preview and self.period.start <= self.now < self.period.end

    @cached_property
    def codes(self) -> list[str]:
        return list(self.teams.order_by("code").values_list("code", flat=True))

    def options(self) -> dict[str, list[str] | None]:
        """Return the choices of each filter from the month's lines; None if there are too many, and for workloads."""
        keys = [line.key for line in self.month.lines]
        places = {(key.cluster, key.namespace) for key in keys if key.namespace}
        found: dict[str, set[str] | None] = {
            "site": {key.cluster for key in keys if key.cluster},
            "namespace": {namespace for _cluster, namespace in places},
            "accelerator": {key.device for key in keys if key.device},
            "model": {key.model for key in keys if key.model},
            "consumer": {key.consumer for key in keys if key.consumer},
            "queue": queues_of(self.period.window, places) if len(places) <= OFFERED else None,
            "workload": None,
        }
        few = {name for name, names in found.items() if names is not None and len(names) <= OFFERED}
        return {name: sorted(names or ()) if name in few else None for name, names in found.items()}

    def rows(self, by: str) -> list[SplitRow]:
        """Split the lines by one of `splits.NAMES`.  Raises TooManyJobsError."""
        return split(self.pieces_by_job if by in BY_JOB else self.pieces, by)

    @cached_property
    def verdicts(self) -> list[AnyVerdict]:
        """Return the verdicts on jobs under the filters; none under a model or consumer. Verdicts have no accelerator."""
        if self.filters.model or self.filters.consumer:
            return []
        return [item for item in self.whole.verdicts_of(self.codes) if self._in_place(item)]

    def _in_place(self, job: AnyVerdict | WastingJob) -> bool:
        """Return True if a job ran in the namespace and the cluster of the filters."""
        return self.filters.namespace in ("", job.namespace) and self.filters.site in ("", job.cluster)

    def wasting(self) -> list[WastingJob]:
        """Return judged jobs with a penalty or a low HFU, the most wasteful first."""
        if self.filters.model or self.filters.consumer:
            return []
        if self.filters.of_jobs:
            jobs = {(piece.line.key.cluster, piece.line.key.namespace, piece.job) for piece in self.pieces}
            found = wasting_jobs(self.verdicts)
            return most_wasteful(job for job in found if (job.cluster, job.namespace, job.job) in jobs)
        if self.month.wasting is None and not self.month.preview:
            names = {"namespace": self.filters.namespace, "cluster": self.filters.site}
            asked = Q(**{name: value for name, value in names.items() if value})
            return most_wasteful(judged_wasting(self.period.close_number, self.codes, asked))
        known = self.month.wasting if self.month.wasting is not None else wasting_jobs(self.verdicts)
        return most_wasteful(job for job in known if self._in_place(job))

    @cached_property
    def scope(self) -> Scope:
        names = {"cluster": self.filters.site, "namespace": self.filters.namespace}
        names |= {name: getattr(self.filters, name) for name in ("accelerator", "model", "consumer")}
        # a filter is an exact name: a `*` in it must not match as the pattern of a scope would
        patterns: dict[str, Any] = {name: value if name == "accelerator" else escape(value) for name, value in names.items()}
        return Scope(frozenset(self.codes), **patterns)

    @cached_property
    def fresh(self) -> Freshness | None:
        """Return freshness and completeness of the figures; None for a closed month."""
        if not self.month.preview:
            return None
        scope: UsageScope = self.scope
        if self.everybody and not self.filters.team:
            scope = replace(scope, teams=None)
        return freshness(scope, self.period.window, self.month.as_of or self.now, unbilled=self.month.unbilled)

    @property
    def stale(self) -> bool:
        """Return True if too much usage may be missing for a forecast or a comparison."""
        return self.fresh is not None and self.fresh.stale

    @property
    def is_forecast(self) -> bool:
        """Return True if a running month has a forecast: daily sums have no jobs, and count slices as their accelerator."""
        return self.running and not self.filters.of_jobs and not self.has_own_slices

    @cached_property
    def has_own_slices(self) -> bool:
        """Return True if slices of the filtered accelerator have a price, and so a name, of their own."""
        return slices_priced_on(self.filters.accelerator)

    def expected(self) -> Expected | None:
        """Return the forecast of a running month as of its sums, or the reason why it has none; else None."""
        if not self.is_forecast:
            return None
        scope = replace(self.scope, teams=self._shown_in(self.period.month))
        as_of = self.month.as_of or self.now
        return expected_of(
            scope, self.period.window, self.total, as_of, self.period.zone, self.reference_data, silent=self.stale
        )

    def _shown_in(self, month: str) -> frozenset[str]:
        """Return the teams that the board shows for a month: charged teams, or teams in showback."""
        return billing_modes().teams(self.codes, month, shadow=self.shadow)

    def last_month(self) -> Decimal | None:
        """Return the invoiced total of the month before, under the same filters; None if that month is not closed.

        A showback board takes its showback total, or the charged one if it had no showback.
        """
        before = BillingPeriod.objects.filter(month=previous_month(self.period.month)).first()
        if before is None or before.status != BillingPeriod.Status.CLOSED:
            return None
        if not self.filters.chosen:
            shown = self.shadow and before.invoices.filter(team__in=self.teams, shadow=True).exists()
            return invoiced_total(before, self.teams, shadow=shown)
        return self._of(before, either=True).total

    def _of(self, period: BillingPeriod, *, either: bool = False) -> "Board":
        """Return the board of another month; with `either` a showback board takes charged lines if there are no others."""
        month = month_facets(period, self.teams)
        only_shown = self.shadow and (bool(month.shown_only) or not either)
        shown = replace(month, charged=[]) if only_shown else replace(month, shown_only=[])
        return replace(self, period=period, month=shown)

    def bridge(self) -> Bridge | None:
        """Return the bridge from the month before; a running month is compared with the same stretch of it.

        None if nothing was used then, and if so much usage may be missing that the figure would be too small.
        """
        if self.stale or self._lacks_teams:
            return None
        before = self._lines_before()
        return bridge_of(before, _lines_of_pieces(self.pieces)) if before else None

    @property
    def _lacks_teams(self) -> bool:
        """Return True if a team of the filters is in no figure of the month."""
        lacking = {*self.month.unrated, *self.month.unbuilt}
        return not lacking.isdisjoint([self.filters.team] if self.filters.team else self.codes)

    @property
    def compared_until(self) -> datetime | None:
        """Return the end of the compared stretch of the month before, as stored or as of now; None unless running."""
        if not self.running:
            return None
        kept = self._kept and beside_of(self._kept).compared_until
        return kept or same_moment(self.period, period_shown(previous_month(self.period.month), self.setup), self.now)

    @cached_property
    def _kept(self) -> RatingSnapshot | None:
        """Return the snapshot that shows a large month by sums; None under a filter of jobs."""
        return None if self.filters.of_jobs or self.month.as_of is None else snapshot_shown(self.period)

    def _lines_before(self) -> Sequence[Charged]:
        if not self.running:
            board = self._of(period_shown(previous_month(self.period.month), self.setup))
            lines = [] if board._lacks_teams else _lines_of_pieces(board.pieces)
            return [line for line in lines if not (board.month.preview and line.key.correction)]
        codes = self._shown_in(previous_month(self.period.month))
        if self._kept and (kept := compared_of(self._kept, codes)) is not None:
            return self.filters.kept(kept)
        return self._days_before(codes)

    def _days_before(self, codes: frozenset[str]) -> Sequence[Charged]:
        days = DaysBefore.of(self.period, self.now, self.reference_data)
        if days is None or days.assessed.entangled or codes & days.assessed.faults.keys():  # unknown: compared with nothing
            return []
        lines = self.filters.kept(previewed(line) for line in days.lines if line.charge.key.team in codes)
        if not self.filters.of_jobs:
            return lines
        seen = Seen(days.window, days.month, days.close_seq, self.reference_data, days.until)
        pieces = by_job(lines, seen, days.assessed.verdicts)
        return part_lines(piece for piece in pieces if self.filters.keeps_job(piece.job, piece.queue))

    def heat(self) -> list[Heat]:
        """Return use by hour of the week of the namespaces and consumers that the lines name."""
        until = min(self.period.end, self.now) if self.kept_use is None else self.kept_use.until
        if until <= self.period.start:
            return []
        window = Interval(self.period.start, until)
        hours = hours_of(window, self.period.zone)
        devices, tokens = self._summed_use(window) if self.kept_use is None else self._kept_sums(self.kept_use)
        found = [heat_of("devices", devices, hours, MICROSECONDS_PER_HOUR, 1), heat_of("tokens", tokens, hours, 1, 0)]
        return [item for item in found if item is not None]

    @cached_property
    def kept_use(self) -> WeekUse | None:
        """Return the stored use of all teams by hour of the week; None if a filter or rights exclude part of it."""
        asked = self.filters
        assessed_for_this_view = self.month.preview and self.month.as_of is None
        if asked.team or asked.namespace or asked.consumer or asked.of_jobs or assessed_for_this_view:
            return None
        preview = snapshot_shown(self.period)
        if preview is None or preview.teams.exclude(team__in=self.teams.values("code")).exists():
            return None
        return beside_of(preview).use

    def _kept_sums(self, use: WeekUse) -> tuple[WeekHours, WeekHours]:
        asked = self.filters
        devices = self._priced_as(
            (item.name, of_hours(item.hours)) for item in use.devices if asked.site in ("", item.name[0])
        )
        tokens = [of_hours(item.hours) for item in use.tokens if asked.model in ("", *item.name)]
        return added_up([] if asked.model else devices), added_up([] if asked.site or asked.accelerator else tokens)

    def _priced_as(self, devices: Iterable[tuple[tuple[str, ...], WeekHours]]) -> Iterator[WeekHours]:
        """Yield the use of devices under the accelerator filter; a slice with a price of its own goes by its resource."""
        named = {line.key.device for line in self.month.lines}
        for (_cluster, accelerator, resource), hours in devices:
            if self.filters.accelerator in ("", resource if resource in named else accelerator):
                yield hours

    def _summed_use(self, window: Interval) -> tuple[WeekHours, WeekHours]:
        """Sum the use of the places and consumers on lines; accelerator and model filter the use itself, not lines."""
        asked, zone = self.filters, self.period.zone
        if asked.of_jobs:
            keys = [piece.line.key for piece in self.pieces]
        else:
            keys = [line.key for line in replace(asked, accelerator="", model="").kept(self.month.lines)]
        places, consumers = named_by(keys)
        devices = devices_by_week_hour(
            window, zone, () if asked.model else places, job=asked.workload, queue=asked.queue
        )
        tokens = tokens_by_week_hour(window, zone, () if asked.accelerator else consumers, asked.model)
        return added_up(self._priced_as(devices.items())), added_up(tokens.values())


def _lines_of_pieces(pieces: Sequence[Piece]) -> Sequence[Charged]:
    """Return whole lines unchanged, and shares of lines as lines of their own."""
    whole = [piece.line for piece in pieces if piece.share == 1]
    return [*whole, *part_lines(piece for piece in pieces if piece.share != 1)]
