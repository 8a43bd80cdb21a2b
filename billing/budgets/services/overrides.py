"""Cap overrides: a budget passes its cap with a reason, an amount, an end, and a second person."""

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db import transaction

from billing.approvals.kinds import Action, Approval, Kind, P, Refused, Why, register
from billing.approvals.limits import require_right, same_person_error
from billing.approvals.models import Step
from billing.approvals.services import approve, proposal_create, proposal_submit, withdraw
from billing.budgets.models import Budget, CapOverride, CapOverrideProposal
from billing.budgets.services.budgets import BudgetError
from billing.runtime.canonical_json import canonical_json, document_hash
from billing.tenancy.access import Right
from billing.tenancy.audit import audit_record
from metering.messages import Message
from pricing.money import round_amount
from pricing.number_text import amount_text


class CapKind(Kind[P]):
    """Proposal to allow more from a budget with a cap: its holder asks, finance or an approver decides."""

    deciders = frozenset({Right.APPROVE, Right.CLOSE})

    def authorise(self, row: P, actor: str, action: str) -> None:
        """Raise unless the actor is of finance or an approver."""
        require_right(actor, self.what(row), Right.APPROVE, Right.CLOSE)

    def what(self, row: P) -> Message:
        """Return the message that names the protected action."""
        return Message("let %(budget)s pass its cap", budget=row.subject)


class CapOverrideKind(CapKind[CapOverrideProposal]):
    """Proposal to let a budget pass its cap by an amount, until an end."""

    name = "cap_override"
    model = CapOverrideProposal
    audit = {
        Action.SUBMITTED: "cap_override_ask", Action.APPROVED: "cap_override_approve", Action.WITHDRAWN: "cap_override_end",
    }  # fmt: skip

    def missing(self, pk: int) -> BudgetError:
        return BudgetError(Message("override %(n)s: there is none of that id", n=pk))

    def refusal(self, row: CapOverrideProposal, refused: Refused) -> Exception:
        if refused.why == Why.MAKER:
            return same_person_error(refused.actor, self.what(row))
        if refused.why == Why.CHANGED:
            return BudgetError(Message("override %(n)s: it is not what was asked for", n=row.override.pk))
        return BudgetError(Message(
            "override %(n)s: it is approved already, or its time is over", n=row.override.pk
        ))  # fmt: skip

    def approval(self, row: CapOverrideProposal, actor: str, now: datetime) -> Approval:
        """Return an approval without further action: the approved override is in force until its end."""
        if self.lapsed(row, now):
            raise self.refusal(row, Refused(Why.STATE, Action.APPROVED, actor))
        return Approval()

    def lapsed(self, row: CapOverrideProposal, now: datetime) -> bool:
        return row.override.until <= now

    def fingerprint(self, row: CapOverrideProposal) -> str:
        """Return the hash of the override's terms, from which the cap is computed."""
        return document_hash(canonical_json(row.override.terms))

    def detail(self, row: CapOverrideProposal, step: Step) -> dict[str, Any]:
        """Return amount, end, reason and requester."""
        return _detail(row.override)


OVERRIDE = CapOverrideKind()
register(OVERRIDE)


def cap_override_ask(
    *, budget: Budget, amount: Decimal, until: datetime, reason: str, now: datetime, actor: str
) -> CapOverride:
    """Ask that the cap of a budget be `amount` higher until then.  Raises BudgetError.

    Nothing changes before another person approves it.
    """
    if not amount > 0 or amount != round_amount(amount) or amount >= 10**18:
        raise BudgetError(Message("amount %(amount)s: must be above 0, with at most two decimals", amount=amount))
    if not now < until:
        raise BudgetError(Message(
            "override until %(until)s: must lie in the future; every override ends", until=until.isoformat()
        ))
    if not reason.strip():
        raise BudgetError(Message("override: a reason is missing"))
    override, why = CapOverride(budget=budget, amount=amount, until=until), reason.strip()[:500]
    with transaction.atomic():
        row = proposal_create(OVERRIDE, subject=str(budget), payload=override.terms, reason=why, actor=actor, now=now)
        override.proposal = row
        override.save()
        proposal_submit(OVERRIDE, row, actor=actor, now=now, reason=why)
    return override


def cap_override_approve(*, override_id: int, now: datetime, actor: str) -> CapOverride:
    """Approve an override.  Raises AuthorityError, BudgetError: it is approved already, or its time is over."""
    approve(OVERRIDE, CapOverride.objects.get(pk=override_id).proposal_id, actor=actor, now=now)
    return CapOverride.objects.get(pk=override_id)


def cap_override_end(*, override: CapOverride, now: datetime, actor: str) -> None:
    """End an override before its time, or withdraw it if nobody has approved it."""
    with transaction.atomic():
        waits = CapOverrideProposal.objects.select_for_update().get(pk=override.proposal_id).waits
        if waits:
            withdraw(OVERRIDE, override.proposal_id, actor=actor, now=now)
        CapOverride.objects.filter(pk=override.pk, until__gt=now).update(until=now)
        if not waits:
            audit_record(actor=actor, action="cap_override_end", subject=str(override.budget), detail=_detail(override))


def _detail(override: CapOverride) -> dict[str, Any]:
    return {"amount": amount_text(override.amount), "until": override.until.isoformat(), "reason": override.reason,
            "asked_by": override.asked_by}  # fmt: skip
