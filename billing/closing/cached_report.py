"""The report of a large month as it is kept for its page: found once, judged anew at every view.

Waivers and the acknowledgement of the journal count as they are now; what was found in the usage is as old as the page says.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec
from django.conf import settings

from billing.closing.engine_comparison import ModelComparison
from billing.closing.models import ProvisionalStatement
from billing.closing.report import Check, Report, ReportedException, judged
from billing.invoices.models import BillingPeriod
from billing.usage.selectors import ScanSum
from metering.messages import Message

NAMED: Final = ("cluster", "accelerator")
"""What of a pool is text; the rest are quantities, amounts, or quantities by team."""


@dataclass(frozen=True, slots=True)
class KeptReport:
    """What was found of a period, without what can change by itself."""

    period: str
    status: str
    checks: list[Check]
    exceptions: list[ReportedException]
    gpu_seconds: dict[str, Decimal | None]
    pools: list[dict[str, Any]]
    tokens: dict[str, int]
    engines: list[ModelComparison]
    scans: list[ScanSum] | None
    energy: list[Message] = field(default_factory=list)
    energy_compared: bool = False


@dataclass(frozen=True, slots=True)
class ShownReport:
    """A report, and as of when it was found."""

    report: Report
    as_of: datetime


def report_kept(found: Report) -> bytes:
    """As JSON; `found` by `report.found_in`."""
    names = KeptReport.__dataclass_fields__
    return msgspec.json.encode({name: getattr(found, name) for name in names}, enc_hook=Message.as_json)


def report_shown(period: BillingPeriod, now: datetime) -> ShownReport | None:
    """The report kept of a large period, judged now; None where the period is small, or none was made yet."""
    preview = (
        ProvisionalStatement.objects.filter(month=period.month, lines__gte=settings.CACHE_STATEMENTS_ABOVE_LINES)
        .defer("facts")
        .first()
    )
    if preview is None or not preview.report or preview.report_as_of is None:
        return None
    kept = msgspec.json.decode(preview.report, type=KeptReport, dec_hook=lambda _, stored: Message.from_json(stored))
    report = Report(
        kept.period, period.status, kept.checks, kept.exceptions, kept.gpu_seconds, [_pool(pool) for pool in kept.pools],
        kept.tokens, kept.engines, kept.scans, kept.energy, kept.energy_compared,
    )  # fmt: skip
    return ShownReport(judged(report, period, now), preview.report_as_of)


def _pool(pool: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value if name in NAMED else _quantity(name, value) for name, value in pool.items()}


def _quantity(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {team: Decimal(share) for team, share in value.items()}
    return value if value is None or name == "idle_billed" else Decimal(value)
