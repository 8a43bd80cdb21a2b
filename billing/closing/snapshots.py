"""Snapshots of large months as pages read them: a few sums of every team, or the lines of one.

Pages of a small month rate it anew with every view. A large one takes seconds, so its pages show the snapshot, and
its date. Waivers and the acknowledgement of the journal count as they are now, also in a stored report.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec
from django.conf import settings

from billing.closing.engine_comparison import ModelComparison
from billing.closing.exceptions import ReportedException
from billing.closing.report import Check, Report, judged
from billing.closing.unmatched_rules import UnmatchedRule
from billing.closing.usage_profile import WeekUse
from billing.invoices.line_rollups import LineRollup, MonthRollups, StatementLine, statement_line
from billing.invoices.lines import invoice_lines
from billing.invoices.models import BillingPeriod
from billing.invoices.services.drafts import charges_by_invoice
from billing.rating.efficiency import Verdict
from billing.rating.models import RatingSnapshot
from billing.rating.snapshots import snapshot_of, team_ratings
from billing.usage.reached import Reached
from metering.messages import Message
from pricing.rating import Charge

NAMED: Final = ("cluster", "accelerator")
"""Fields of a report's pool that are text; the rest are quantities, amounts, or quantities by team."""


class KindSum(msgspec.Struct, frozen=True, gc=False):
    """Sum of rounded lines of one kind."""

    kind: str
    correction: bool
    amount: Decimal


@dataclass(frozen=True, slots=True)
class TeamContent:
    """Lines that a team would be charged, lines in showback, and the verdicts on its jobs."""

    charged: list[StatementLine] = field(default_factory=list)
    shadow: list[StatementLine] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


class TeamSums(msgspec.Struct):
    """Sums of a team's lines by kind."""

    charged: list[KindSum] = []
    shadow: list[KindSum] = []


class KeptSums(TeamSums):
    """Stored sums of a team's month; a reader decodes only what it shows."""

    rollups: MonthRollups = msgspec.field(default_factory=MonthRollups)


class _OnlyRollups(msgspec.Struct):
    rollups: MonthRollups


class Beside(msgspec.Struct):
    """Extras of a month's snapshot: its use by hour of the week, and up to when teams are compared with the month before.

    None where they were not computed.
    """

    use: WeekUse | None = None
    compared_until: datetime | None = None


def snapshot_shown(period: BillingPeriod) -> RatingSnapshot | None:
    """Return the last rating of a period, open or closed, if it is large enough to be stored."""
    return snapshot_of(period.month, period.close_seq)


def beside_of(snapshot: RatingSnapshot) -> Beside:
    """Return the extras of a snapshot."""
    return msgspec.json.decode(snapshot.beside or b"{}", type=Beside)


def team_contents(charges: Iterable[Charge], verdicts: Mapping[str, list[Verdict]]) -> dict[str, TeamContent]:
    """Group invoice lines and verdicts by team, charged and showback lines separately."""
    lines = {
        key: [statement_line(line) for line in invoice_lines(own)] for key, own in charges_by_invoice(charges).items()
    }
    return {
        code: TeamContent(lines.get((code, False), []), lines.get((code, True), []), verdicts.get(code, []))
        for code in sorted({code for code, _ in lines} | {code for code, found in verdicts.items() if found})
    }


def contents_of(snapshot: RatingSnapshot, teams: Iterable[str]) -> dict[str, TeamContent]:
    """Return the lines and verdicts of some teams from a snapshot."""
    found = team_ratings(snapshot, teams)
    charges = [charge for rating in found.values() for charge in rating.charges]
    return team_contents(charges, {team: rating.verdicts for team, rating in found.items()})


def kind_sums(lines: Iterable[StatementLine]) -> list[KindSum]:
    """Sum the lines by kind, corrections separately."""
    sums: dict[tuple[str, bool], Decimal] = defaultdict(lambda: Decimal("0.00"))
    for line in lines:
        sums[line.key.kind, line.key.correction] += line.amount
    return [KindSum(*name, amount) for name, amount in sums.items()]


def sums_of(snapshot: RatingSnapshot, teams: Iterable[str]) -> dict[str, TeamSums]:
    """Return the sums by kind of some teams from a snapshot."""
    decoder = msgspec.json.Decoder(TeamSums)
    return {team: decoder.decode(sums) for team, sums in _rows(snapshot, teams, "team", "sums")}


def rollups_of(snapshot: RatingSnapshot, teams: Iterable[str]) -> MonthRollups:
    """Return sums by place and SKU, of all the teams together."""
    decoder, found = msgspec.json.Decoder(_OnlyRollups), MonthRollups()
    for (sums,) in _rows(snapshot, teams, "sums"):
        rollups = decoder.decode(sums).rollups
        found.charged.extend(rollups.charged)
        found.shadow.extend(rollups.shadow)
        found.wasting.extend(rollups.wasting)
    return found


def compared_of(snapshot: RatingSnapshot, teams: Iterable[str]) -> list[LineRollup] | None:
    """Return sums of as many days of the month before, of all the teams together; None if they were not stored."""
    if beside_of(snapshot).compared_until is None:
        return None
    decoder = msgspec.json.Decoder(list[LineRollup])
    return [item for (compared,) in _rows(snapshot, teams, "compared") for item in decoder.decode(compared)]


def _rows(snapshot: RatingSnapshot, teams: Iterable[str], *columns: str) -> Iterable[tuple[Any, ...]]:
    return snapshot.teams.filter(team__in=list(teams)).order_by("team").values_list(*columns)


class KeptReport(msgspec.Struct):
    """Stored findings of a period, without what can change by itself. `form`: another number is of another release."""

    form: Literal[3]
    period: str
    status: str
    checks: list[Check]
    exceptions: list[ReportedException]
    gpu_seconds: dict[str, Decimal | None]
    pools: list[dict[str, Any]]
    tokens: dict[str, int]
    engines: list[ModelComparison]
    unmatched: list[UnmatchedRule]
    reached: list[Reached]
    rounding: list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class ShownReport:
    """A report, and as of when it was made."""

    report: Report
    as_of: datetime


def report_kept(found: Report) -> bytes:
    """Encode findings as JSON; `found` by `report.found_in`."""
    facts = {name: getattr(found, name) for name in KeptReport.__struct_fields__ if name != "form"}
    return msgspec.json.encode({"form": 3, **facts}, enc_hook=Message.as_json)


def report_shown(period: BillingPeriod, now: datetime) -> ShownReport | None:
    """Return the stored report of a large period, judged now; None if the period is small or this release made none yet."""
    large = RatingSnapshot.objects.filter(month=period.month, size__gte=settings.CACHE_STATEMENTS_ABOVE_LINES)
    found = large.values_list("report", "report_as_of").first()
    if found is None or found[1] is None:
        return None
    try:
        kept = msgspec.json.decode(found[0], type=KeptReport, dec_hook=lambda _, stored: Message.from_json(stored))
    # stored by another release, in another form
    except msgspec.ValidationError:
        return None
    facts = {name: getattr(kept, name) for name in kept.__struct_fields__ if name != "form"}
    report = Report(**facts | {"status": period.status, "pools": [_pool(pool) for pool in kept.pools]})
    return ShownReport(judged(report, period, now), found[1])


def _pool(pool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if name in NAMED else _quantity(name, value) for name, value in pool.items()}


def _quantity(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {team: Decimal(share) for team, share in value.items()}
    return value if value is None or name == "idle_billed" else Decimal(value)
