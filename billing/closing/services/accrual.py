"""Accruals: estimates of an open month for an early book close. The same estimate is returned until another is requested."""

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import Any

import msgspec
from django.db import transaction

from billing.closing.accrual import AccrualFacts, accrual_csv, accrual_of
from billing.closing.models import Accrual
from billing.closing.report import Report, build_report
from billing.exports.journal import Chart
from billing.invoices.issued import issued_notes
from billing.invoices.lines import draft_document, invoice_lines
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import document_of
from billing.invoices.services.drafts import charges_by_invoice, parties_of
from billing.invoices.services.periods import period_open
from billing.rating.assessment import RatingResult
from billing.rating.freshness import freshness
from billing.rating.snapshots import rated_now
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup
from billing.usage.scope import EVERYTHING
from metering.intervals import day_of
from metering.messages import Message, UserError
from pricing.money import EXACT
from pricing.number_text import plain_text


class AccrualError(UserError):
    """Error: a month that needs no estimate, or none yet."""

    code = "accrual"


@dataclass(frozen=True)
class Accrued:
    """A stored estimate; `created` is True if this call made it."""

    accrual: Accrual
    created: bool

    @property
    def document(self) -> dict[str, Any]:
        """Return the estimate as it was stored."""
        document: dict[str, Any] = json.loads(self.accrual.document)
        return document

    @property
    def csv(self) -> bytes:
        """Return the file for the ledger, the same bytes every time."""
        return accrual_csv(self.document)


def accrual_make(*, month: str, chart: Chart, actor: str, now: datetime, again: bool = False) -> Accrued:
    """Return the estimate of an open month, made if there is none; with `again` a new revision as of now.

    A new revision replaces the previous one, and its file takes back what that one posted.

    Raises AccrualError for a month that is closed or has not begun, JournalError if a team has no cost centre.
    """
    period_open(month=month)
    with transaction.atomic():
        # locked, so that two callers do not make the same revision
        period = BillingPeriod.objects.select_for_update().get(month=month)
        last = period.accruals.order_by("-revision").first()
        if last is not None and not again:
            return Accrued(last, created=False)
        _refuse(period, now)
        accrual = _store(period, last, chart, actor, now)
    return Accrued(accrual, created=True)


def accrual_last(period: BillingPeriod) -> Accrued | None:
    """Return the current estimate of a month, or None."""
    last = period.accruals.order_by("-revision").first()
    return None if last is None else Accrued(last, created=False)


def _refuse(period: BillingPeriod, now: datetime) -> None:
    if period.status != BillingPeriod.Status.OPEN:
        raise AccrualError(Message(
            "period %(month)s is %(status)s: export its journal instead of an estimate",
            month=period.month, status=period.status,
        ))
    if now < period.start:
        raise AccrualError(Message("period %(month)s has not begun: there is nothing to estimate", month=period.month))


def _store(period: BillingPeriod, last: Accrual | None, chart: Chart, actor: str, now: datetime) -> Accrual:
    setup, revision = billing_setup(), last.revision + 1 if last else 1
    name = f"ACC-{setup.issuer}-{period.month}-{revision}"
    ends = day_of(period.end, period.zone)
    assessment = rated_now(month=period.month, window=period.window, zone=period.zone, close_seq=None)
    left_out = _left_out(build_report(period, now=now, thorough=False, assessment=assessment), assessment)
    fresh = freshness(EVERYTHING, period.window, now)
    before = json.loads(last.document) if last else None
    facts = AccrualFacts(name, period.month, now, ends, left_out, before, fresh.data_through)
    text = canonical_json(accrual_of(_documents(period, name, assessment), chart, facts))
    accrual = Accrual.objects.create(
        period=period, revision=revision, name=name, as_of=now, document=text, sha256=document_hash(text), created_by=actor
    )
    audit_record(actor=actor, action="accrual_make", subject=name, detail={"sha256": accrual.sha256})
    return accrual


def _documents(period: BillingPeriod, name: str, assessment: RatingResult) -> Iterator[dict[str, Any]]:
    """Yield the preview of each team that is charged, then the notes that the open month has issued, as if numbered."""
    setup, teams = billing_setup(), Team.objects.in_bulk(field_name="code")
    for (code, shadow), charges in sorted(charges_by_invoice(assessment.charges).items()):
        if not shadow:
            parties = parties_of(period, setup, teams[code])
            draft = msgspec.to_builtins(draft_document(parties, invoice_lines(charges)))
            yield {**draft, "number": f"{name}-{code}"}
    for note in issued_notes(period.month):
        document = document_of(note)
        yield {**document, "number": f"{name}-{document['number']}"}


def _left_out(report: Report, assessment: RatingResult) -> list[dict[str, Any]]:
    """Return what the estimate lacks: usage without owner or price, gaps, and teams that cannot be rated."""
    sums: dict[tuple[str, str], list[Decimal]] = defaultdict(list)
    for item in report.blocking:
        if item.kind != "team_unrated":
            sums[item.kind, item.unit].append(item.quantity)
    unrated = [
        {"kind": "team_unrated", "unit": "teams", "exceptions": 1, "quantity": "1", "team": team, "problem": problem}
        for team, problem in sorted(assessment.faults.items())
    ]
    return unrated + [
        {"kind": kind, "unit": unit, "exceptions": len(found), "quantity": plain_text(reduce(EXACT.add, found))}
        for (kind, unit), found in sorted(sums.items())
    ]
