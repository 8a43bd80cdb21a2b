"""Check of a close: the rating and the report of a month while usage comes in, repeated in part at the cut-off.

The month is rated once, or its snapshot is used if that is valid. At the instant of the cut-off, when no usage comes in,
the fingerprint of its inputs shows without rating whether any of them changed.
If none did, that rating is what the close bills; else the month is rated again as of the close. All other exceptions that
can block a close are checked again.
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
    """Report of an open month, with its rating and the fingerprint of the rating's inputs."""

    report: Report
    rated: RatingResult
    fingerprint: str

    def at_cut_off(self, period: BillingPeriod, *, now: datetime) -> tuple[Report, RatingResult | None]:
        """Return the report that decides, and the rating if its inputs are unchanged; no usage comes in meanwhile."""
        same = fingerprint_now(window=period.window, zone=period.zone) == self.fingerprint
        return report_at_cut_off(Context(period, now, self.rated), same=same), self.rated if same else None


def close_check(
    period: BillingPeriod, *, now: datetime, report_progress: ProgressCallback = no_progress
) -> CloseCheck:
    """Rate an open month, or use its valid snapshot, and find all that blocks its close, as of one instant."""
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
