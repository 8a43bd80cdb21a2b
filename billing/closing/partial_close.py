"""Partial close: billed teams keep their bills while facts are repaired so that the blocked teams can be billed."""

from dataclasses import replace
from operator import attrgetter
from typing import Final

from billing.invoices.models import BillingPeriod
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.models import Charge as ChargeRow
from billing.rating.models import EfficiencyVerdict
from metering.messages import Message, UserError

TEAMS_NAMED: Final = 5
"""Teams that a message names; the report names all."""
VERDICT: Final = ("team", "cluster", "namespace", "job_key", "policy")
_name_of: Final = attrgetter(*VERDICT)


class ClosingChangeError(UserError, ValueError):
    """Error: a change that a month in the middle of its close cannot take; the message says what can be done instead."""

    code = "change_during_close"


def closing_check() -> None:
    """Raise ClosingChangeError if a change affects more than the teams that a close blocks.

    Called in the transaction of a change of ownership, prices or policies, after it, under the ingest lock: no close begins
    or ends meanwhile.
    """
    for period in BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSING).order_by("close_seq"):
        if not period.held_teams.exists():
            raise ClosingChangeError(Message(
                "period %(month)s is being closed: finish `manage.py period_close %(month)s` first, or have two "
                "persons open it again with `manage.py period_reopen`",
                month=period.month,
            ))
        _require_only_blocked(period)


def _require_only_blocked(period: BillingPeriod) -> None:
    """Raise ClosingChangeError unless the other teams' bills follow again and all usage keeps its owner and price."""
    assessment = rate_period(window=period.window, zone=period.zone, close_seq=period.close_seq)
    if assessment.unowned or assessment.unpriced:
        raise ClosingChangeError(Message(
            "this would leave usage of %(month)s, which is being closed, without owner or price", month=period.month
        ))
    if teams := differing(period, assessment):
        blocked = list(period.held_teams.values_list("team", flat=True))
        raise ClosingChangeError(Message(
            "this would change what %(teams)s owes for %(month)s, whose close blocks other teams only: change what "
            "concerns %(period)s, or have two persons open it again while nothing of it is issued",
            teams=_named(teams), month=period.month, period=_named(blocked),
        ))


def differing(period: BillingPeriod, assessment: RatingResult) -> list[str]:
    """Return the teams whose bills of this close would no longer follow.

    A stored charge stays. A new one may only be of a blocked team, of a team without any charge, or of the platform.
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
    """Return the charges and verdicts that are not stored yet, for a close that blocked some teams."""
    stored = _stored(period)
    judged = set(EfficiencyVerdict.objects.filter(close_seq=period.close_number).values_list(*VERDICT))
    return replace(
        assessment,
        charges=[charge for charge in assessment.charges if charge.key.digest() not in stored],
        verdicts=[verdict for verdict in assessment.verdicts if _name_of(verdict) not in judged],
    )


def _stored(period: BillingPeriod) -> dict[str, ChargeRow]:
    rows = ChargeRow.objects.filter(close_seq=period.close_number)
    return {row.line_key: row for row in rows.only("line_key", "team", "platform", "usage_quantity", "unit_price")}


def _named(teams: list[str]) -> str:
    more = f" and {len(teams) - TEAMS_NAMED} more" if len(teams) > TEAMS_NAMED else ""
    return ", ".join(teams[:TEAMS_NAMED]) + more
