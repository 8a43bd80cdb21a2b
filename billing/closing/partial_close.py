"""A close that holds some teams: what it has billed stays as it is, whatever is changed so that the others can be billed."""

from dataclasses import replace
from typing import Final

from billing.invoices.models import BillingPeriod
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.efficiency import Verdict
from billing.rating.models import Charge as ChargeRow
from billing.rating.models import EfficiencyVerdict
from metering.intervals import Interval
from metering.messages import Message, UserError

TEAMS_TOLD: Final = 5
VERDICT: Final = ("team", "cluster", "namespace", "job_key", "policy")


class ClosingChangeError(UserError, ValueError):
    """A change that a month in the middle of its close cannot take; it says what can be done instead."""

    code = "change_during_close"


def closing_check() -> None:
    """Raise ClosingChangeError if a change reaches further than to the teams that a close holds.

    Called in the transaction of a change of ownership, prices or policies, after it, with the epoch held: no close begins
    or ends meanwhile.
    """
    for period in BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSING).order_by("close_seq"):
        if not period.held_teams.exists():
            raise ClosingChangeError(Message(
                "period %(month)s is being closed: finish `manage.py period_close %(month)s` first, or have two "
                "persons open it again with `manage.py period_reopen`",
                month=period.month,
            ))
        _require_only_held(period)


def _require_only_held(period: BillingPeriod) -> None:
    """The bills that stand follow again, and nothing else has lost its owner or its price."""
    window = Interval(period.start, period.end)
    assessment = rate_period(window=window, zone=period.zone, close_seq=period.close_seq, isolate=True)
    if assessment.unowned or assessment.unpriced:
        raise ClosingChangeError(Message(
            "this would leave usage of %(month)s, which is being closed, without owner or price", month=period.month
        ))
    if teams := differing(period, assessment):
        raise ClosingChangeError(Message(
            "this would change what %(teams)s owes for %(month)s, whose close holds other teams only: change what "
            "concerns %(period)s, or have two persons open it again while nothing of it is issued",
            teams=_told(teams), month=period.month, period=_told(held(period)),
        ))


def differing(period: BillingPeriod, assessment: RatingResult) -> list[str]:
    """The teams whose bills of this close would not follow any more.

    A charge that was written stays. One that was not may come to a team that is held, that has none, or to the platform.
    """
    stored = _stored(period)
    again = {charge.key.digest(): (charge.usage_quantity, charge.unit_price) for charge in assessment.charges}
    billed = {row.team for row in stored.values() if not row.platform}
    changed = {row.team for key, row in stored.items() if again.get(key) != (row.usage_quantity, row.unit_price)}
    added = {
        charge.key.team
        for charge in assessment.charges
        if not charge.key.platform and charge.key.team in billed and charge.key.digest() not in stored
    }
    return sorted(changed | added)


def unwritten(period: BillingPeriod, assessment: RatingResult) -> RatingResult:
    """What a close has still to write after it held some teams: charges and verdicts that are not stored yet."""
    stored = _stored(period)
    judged = set(EfficiencyVerdict.objects.filter(close_seq=period.close_number).values_list(*VERDICT))
    return replace(
        assessment,
        charges=[charge for charge in assessment.charges if charge.key.digest() not in stored],
        verdicts=[verdict for verdict in assessment.verdicts if _verdict(verdict) not in judged],
    )


def _verdict(verdict: Verdict) -> tuple[str, ...]:
    return tuple(getattr(verdict, name) for name in VERDICT)


def _stored(period: BillingPeriod) -> dict[str, ChargeRow]:
    rows = ChargeRow.objects.filter(close_seq=period.close_number)
    return {row.line_key: row for row in rows.only("line_key", "team", "platform", "usage_quantity", "unit_price")}


def held(period: BillingPeriod) -> list[str]:
    """Codes of the teams that the close of a period holds."""
    return list(period.held_teams.values_list("team", flat=True))


def _told(teams: list[str]) -> str:
    more = f" and {len(teams) - TEAMS_TOLD} more" if len(teams) > TEAMS_TOLD else ""
    return ", ".join(teams[:TEAMS_TOLD]) + more
