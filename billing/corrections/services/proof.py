"""Proof that every document of a closed period follows, to the byte, from stored usage, prices and ownership."""

import json
from dataclasses import dataclass

from billing.corrections.close_proof import closes_altered
from billing.corrections.note_proof import correction_follows, note_again
from billing.invoices.issued import issued_notes
from billing.invoices.lines import (
    ISSUER_FACTS,
    RECIPIENT_FACTS,
    InvoiceParties,
    draft_document,
    invoice_lines,
    non_empty,
    numbered_document,
)
from billing.invoices.models import BillingPeriod, Invoice, Note
from billing.invoices.services.drafts import charges_by_invoice
from billing.rating.assessment import RatingResult, rate_period
from billing.rating.input_fingerprint import facts_now
from billing.rating.snapshots import ClosedMonth, charge_faults, charges_differing
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.runtime.gc_pause import collector_paused
from billing.usage.altered import usage_altered
from billing.usage.digests import digest_of_close, usage_digest
from billing.usage.services.archiving import archive_faults
from billing.usage.store.proofs import rollup_difference
from metering.messages import Message, UserError
from pricing.number_text import amount_text
from pricing.rating import Charge


class ClosedPeriodError(UserError, ValueError):
    """Change that would alter the charges of a closed period."""

    code = "change_of_closed_period"


@dataclass(frozen=True)
class Proof:
    """Proof of one document: the stored hash, and the hash of the recomputed document.

    `of_usage`: a proof of the usage of all documents, of no team: the expected and the found fact.
    """

    team: str
    number: str | None
    stored: str
    recomputed: str
    of_usage: bool = False
    shadow: bool = False

    @property
    def holds(self) -> bool:
        """Return True if both are the same document."""
        return self.stored == self.recomputed


def period_verify(*, month: str, usage: bool = True) -> list[Proof]:
    """Rate a closed period again; return one proof per team with an invoice or charges, and one per note issued in it.

    The proof of a team that cannot be rated has the error and fails, as do those of teams that depend on it. `usage`: also
    check the close against its period and the audit log, its charges against the rating, and the usage against the reports
    and the digest of the close; a difference gives a failing proof.
    """
    period = BillingPeriod.objects.get(month=month, status=BillingPeriod.Status.CLOSED)
    assessment = _again(period)
    charges = charges_by_invoice(assessment.charges)
    live = period.invoices.exclude(status=Invoice.Status.VOID).select_related("team", "period")
    invoices = {(invoice.team.code, invoice.shadow): invoice for invoice in live}
    proofs = [
        _unproven(code, invoices.get((code, shadow)), assessment, shadow=shadow)
        if code in assessment.faults or assessment.entangled
        else _prove(code, invoices.get((code, shadow)), charges.get((code, shadow), []), shadow=shadow)
        for code, shadow in sorted(charges.keys() | invoices.keys())
    ]
    notes = issued_notes(month)
    follow = {note.correction: correction_follows(note.correction) for note in notes}
    proofs += [_prove_note(note, follow[note.correction]) for note in notes]
    if not usage:
        return proofs
    faults = charge_faults(assessment, period.close_number) + _usage_faults(period)
    return proofs + [Proof("", None, *fault, of_usage=True) for fault in faults]


def _prove_note(note: Note, follows: bool) -> Proof:
    again = document_hash(canonical_json(note_again(note))) if follows else "its change gives other charges"
    return Proof(note.team.code, note.number, _stored_hash(note), again)


def _stored_hash(document: Invoice | Note) -> str:
    """Return the hash of the stored text, or an error text if it differs from the stored hash."""
    found = document_hash(document.document)
    return found if found == document.sha256 else "hash is broken"


def _usage_faults(period: BillingPeriod) -> list[tuple[str, str]]:
    """Return (expected, found) for each kind of usage that differs from the reports or from the digest of the close.

    The close stores a digest of the usage that it billed in the audit log, whose entries are chained.
    """
    window = period.window
    faults = [(fault.expected, fault.found) for fault in closes_altered() if fault.month == period.month]
    faults += [("as reported", item.detail) for item in usage_altered(window)]
    moved = ", ".join(f"{name} {count:+d}" for name, count in rollup_difference(window).items() if count)
    faults += [("token roll-ups = token events", moved)] if moved else []
    faults += [("records in the archive", fault) for fault in archive_faults(period.month)]
    seen = digest_of_close(period.month, period.close_number)
    now = usage_digest(window, period.close_number)
    return faults + [(f"{kind} {seen[kind]}", f"{kind} {now[kind]}") for kind in seen if seen[kind] != now.get(kind)]


def closed_periods_check(*, thorough: bool = False) -> list[str]:
    """Raise ClosedPeriodError if the rating of any closed period would now differ from its charges.

    Called after a change of ownership or prices, in the transaction of that change.  Returns the months that were rated
    again: those whose usage, owners, prices or charges changed since their last check; `thorough`: all.
    """
    periods = BillingPeriod.objects.filter(status=BillingPeriod.Status.CLOSED).order_by("close_seq")
    if not periods:
        return []
    facts, again = facts_now(), []
    for period in periods:
        closed = ClosedMonth(period.month, period.window, period.zone, period.close_number, facts)
        if thorough or not closed.proved:
            _rate_again(period)
            closed.keep_proof()
            again.append(period.month)
    return again


def _rate_again(period: BillingPeriod) -> None:
    assessment = _again(period)
    if assessment.faults:
        problems = "; ".join(f"{team}: {problem}" for team, problem in sorted(assessment.faults.items()))
        raise ClosedPeriodError(Message(
            "period %(month)s is closed, and teams of it cannot be rated again: %(problems)s",
            month=period.month, problems=problems,
        ))
    if differing := charges_differing(assessment, period.close_number):
        raise ClosedPeriodError(Message(
            "this would change %(n)s charges of period %(month)s, which is closed", n=differing, month=period.month
        ))


def _again(period: BillingPeriod) -> RatingResult:
    with collector_paused():
        return rate_period(window=period.window, zone=period.zone, close_seq=period.close_seq)


def _unproven(code: str, invoice: Invoice | None, assessment: RatingResult, *, shadow: bool) -> Proof:
    fault = assessment.faults.get(code)
    why = f"cannot be rated: {fault}" if fault else "hangs on teams that cannot be rated"
    number, stored = (invoice.number, invoice.sha256) if invoice else (None, "no document")
    return Proof(code, number, stored, why, shadow=shadow)


def _prove(code: str, invoice: Invoice | None, charges: list[Charge], *, shadow: bool) -> Proof:
    if invoice is None:
        return Proof(code, None, stored="no document", recomputed=f"{len(charges)} charges", shadow=shadow)
    facts = invoice.draft
    parties = InvoiceParties(
        issuer=facts["issuer"]["name"], team=code, team_name=facts["recipient"]["name"],
        cost_center=facts["recipient"]["cost_center"], currency=facts["currency"], month=facts["period"]["month"],
        zone=facts["period"]["zone"], window=invoice.period.window, shadow=invoice.shadow,
        issuer_facts=non_empty(facts["issuer"], ISSUER_FACTS),
        recipient_facts=non_empty(facts["recipient"], RECIPIENT_FACTS),
    )  # fmt: skip
    draft = draft_document(parties, invoice_lines(charges))
    # drafts have no number and no predecessor: their draft documents are compared
    if invoice.number is None:
        stored, again = document_hash(canonical_json(facts)), document_hash(canonical_json(draft))
        return Proof(code, None, stored, again, shadow=shadow)
    document = numbered_document(draft, number=invoice.number, previous_sha256=invoice.previous_sha256)
    right_total = json.loads(invoice.document)["total"] == amount_text(invoice.total)
    stored = _stored_hash(invoice) if right_total else "total is broken"
    return Proof(code, invoice.number, stored, document_hash(canonical_json(document)))
