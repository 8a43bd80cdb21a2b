"""Whether a month can be closed, and what it would bill: seen while usage comes in, and asked again at the cut-off.

The month is rated once, or its snapshot is taken where that is valid. In the instant of the cut-off, in which no usage comes
in, it is asked whether anything that it was rated from has changed: the fingerprint of its inputs says so without rating.
Where nothing has, that rating is what the close bills; else the month is rated again as of the close. Whatever else can
block a close is asked again itself.
"""

from dataclasses import dataclass
from datetime import datetime

from billing.closing.exceptions import Context
from billing.closing.report import Report, UsageReads, found_in, judged, report_at_cut_off
from billing.invoices.models import BillingPeriod
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.input_fingerprint import fingerprint_now
from billing.rating.snapshots import valid_result
from billing.runtime.parallel_reads import deferred_query
from billing.runtime.progress import ProgressCallback, no_progress
from billing.usage.epochs import one_snapshot


@dataclass(frozen=True, slots=True)
class CloseCheck:
    """The report of an open month, and the rating that it is of."""

    report: Report
    rated: RatingResult
    fingerprint: str

    def at_cut_off(self, period: BillingPeriod, *, now: datetime) -> tuple[Report, RatingResult | None]:
        """The report that decides, and the rating where its inputs are still the same; no usage comes in meanwhile."""
        same = fingerprint_now(window=period.window, zone=period.zone) == self.fingerprint
        return report_at_cut_off(Context(period, now, self.rated), same=same), self.rated if same else None


def close_check(
    period: BillingPeriod, *, now: datetime, report_progress: ProgressCallback = no_progress
) -> CloseCheck:
    """Rate an open month, or take its valid snapshot, and look for whatever blocks its close, all as of one instant."""
    window = period.window
    report_progress("rate", 0, 0)
    with one_snapshot(beside=True):
        fingerprint, reads = deferred_query(fingerprint_now, window=window, zone=period.zone), UsageReads.begun(period)
        rated = valid_result(period.month, fingerprint)
        if rated is None:
            rated = rate_period(window=window, zone=period.zone, close_seq=None)
        report_progress("look", 0, 0)
        found = found_in(period, now, rated, thorough=False, reads=reads)
        return CloseCheck(judged(found, period, now, thorough=False), rated, fingerprint())
