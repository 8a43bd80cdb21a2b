"""Drafts of price lists: written, submitted, then approved by another person, which publishes them, or rejected.

A person who writes or submits a draft is one of its makers, and no maker decides on it (`billing.approvals`).
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

from billing.approvals.kinds import Action, Approval, Kind, Refused, Why, register
from billing.approvals.models import Step, instant_text
from billing.approvals.services import (
    approve,
    locked,
    proposal_create,
    proposal_revise,
    proposal_submit,
    reject,
    withdraw,
)
from billing.rates.models import CostSheet, PriceDraft, PriceVersion, TokenCostSheet
from billing.rates.price_file import rebased, version_content
from billing.rates.price_list import PriceList, PriceListError, parse_price_list, slice_problems
from billing.rates.selectors import (
    base_of,
    draft_fingerprint,
    notice_of,
    price_version_before,
    stored_sources,
    version_in_force,
)
from billing.rates.services.publishing import PriceVersionInput, price_version_publish, publish_lock
from billing.rates.services.sheets import RateError
from billing.tenancy.access import Right
from billing.tenancy.selectors import billing_setup
from metering.messages import Message
from pricing.fields import FieldProblem, path_text, shown

State = PriceDraft.State
MAX_NAME = 200
MAX_REASON = 2000
STATES = {
    State.DRAFT: Message("being written"), State.SUBMITTED: Message("waits for a second person"),
    State.APPROVED: Message("published"), State.REJECTED: Message("sent back with a reason"),
    State.WITHDRAWN: Message("given up"),
}  # fmt: skip
VERBS = {
    Action.EDITED: Message("changed"), Action.SUBMITTED: Message("submitted"), Action.APPROVED: Message("approved"),
    Action.REJECTED: Message("rejected"), Action.WITHDRAWN: Message("withdrawn"),
}  # fmt: skip


class PriceDraftError(RateError):
    """Error of a draft that cannot be stored, submitted or decided. `problems` has one entry per bad field."""

    code = "price_draft"

    def __init__(self, problems: list[FieldProblem]) -> None:
        self.problems = problems
        super().__init__(Message.joined(problem.message for problem in problems))

    @property
    def by_field(self) -> dict[str, list[str]]:
        messages: dict[str, list[str]] = {}
        for problem in self.problems:
            messages.setdefault(path_text(problem.path), []).append(str(problem.text))
        return messages


class PriceListKind(Kind[PriceDraft]):
    """Proposal kind of a complete price list: one approver decides, and may send it back to its makers.

    `open_since` returns the end of the last closed month, None before any; `billing.rating` sets it.
    """

    name = "price_list"
    model = PriceDraft
    open_since: Callable[[], datetime | None] = staticmethod(lambda: None)
    deciders = frozenset({Right.APPROVE})
    revisable = True
    audit = {
        Action.CREATED: "price_draft_created", Action.EDITED: "price_draft_edited",
        Action.SUBMITTED: "price_draft_submitted", Action.APPROVED: "price_draft_approved",
        Action.REJECTED: "price_draft_rejected", Action.WITHDRAWN: "price_draft_withdrawn",
    }  # fmt: skip

    def missing(self, pk: int) -> PriceDraftError:
        return _refused("draft", Message("%(number)s: there is none of that id", number=pk))

    def refusal(self, row: PriceDraft, refused: Refused) -> PriceDraftError:
        name, actor = row.name, refused.actor
        match refused.why:
            case Why.TAKEN:
                return _refused("name", Message("%(value)s is the name of another draft", value=shown(name)))
            case Why.STALE:
                return _refused("revision", Message(
                    "%(value)s is not the newest: the draft is at %(revision)s by now",
                    value=refused.revision, revision=row.revision,
                ))  # fmt: skip
            case Why.REASON:
                return _refused("reason", Message("is missing: say what is wrong, for the author of the draft"))
            case Why.CHANGED:
                changed = Message("a cost sheet of it changed after the submission: edit and submit it again")
                return _refused("content", changed)
            case Why.MAKER:
                return _refused("actor", Message(
                    "%(actor)s made %(name)s: a second person decides on it, who did not write or submit it",
                    actor=actor, name=name,
                ))  # fmt: skip
            case _:
                return _refused("state", Message(
                    "%(name)s is %(state)s and cannot be %(verb)s",
                    name=name, state=STATES[State(row.state)], verb=VERBS[Action(refused.action)],
                ))  # fmt: skip

    def approval(self, row: PriceDraft, actor: str, now: datetime) -> Approval:
        """Return the approval that publishes the list; its sheets are locked meanwhile, and are evidence from then on."""
        problems = _publication_problems(row, now)
        # before the check of the prices: a sheet cannot change in between
        _lock_sheets(row.content)
        prices = _checked(row.content, row.currency, problems)
        wanted = PriceVersionInput(row.name, row.currency, row.valid_from, prices, row)
        origin = f"draft {row.pk} of {', '.join(row.makers)}"
        return Approval(partial(price_version_publish, wanted=wanted, actor=actor, origin=origin))

    def fingerprint(self, row: PriceDraft) -> str:
        """Return the hash of the list and all inputs behind its prices."""
        return draft_fingerprint(row, _checked(row.content, row.currency, []))

    def detail(self, row: PriceDraft, step: Step) -> dict[str, Any]:
        """Return the audit detail: revision, makers, and notice in business days."""
        detail = {
            "draft": row.pk, "revision": row.revision, "valid_from": row.valid_from.isoformat(), "makers": row.makers,
            "reason": step.comment, "sha256": row.sha256,
        }  # fmt: skip
        if step.action in (Action.SUBMITTED, Action.APPROVED):
            detail["notice_business_days"] = notice_of(row, step.at)
        if step.action == Action.APPROVED:
            detail["submitted_by"] = row.submitted_by
        return detail


PRICE_LIST = PriceListKind()
register(PRICE_LIST)


def price_draft_create(
    *,
    name: str,
    valid_from: datetime,
    content: Mapping[str, Any],
    actor: str,
    now: datetime,
    reason: str = "",
    base: str = "",
) -> PriceDraft:
    """Store a new draft of a complete price list: `content` is {"gpu": [...], "tokens": [...]} as in the set-up file.

    `base` names the published list from which it was begun; by default the list that it follows.
    Raises PriceDraftError with every bad field.
    """
    currency = billing_setup().currency
    problems = _name_problems(name) + _start_problems(valid_from)
    prices = _checked(content, currency, [*problems, *_base_problems(base)])
    followed = version_in_force(valid_from)
    payload = _payload(currency, valid_from, prices, base or (followed.name if followed else None))
    return proposal_create(PRICE_LIST, subject=name, payload=payload, reason=_words(reason), actor=actor, now=now)


def price_draft_edit(
    *,
    draft: PriceDraft,
    actor: str,
    now: datetime,
    name: str | None = None,
    valid_from: datetime | None = None,
    content: Mapping[str, Any] | None = None,
    reason: str | None = None,
    revision: int | None = None,
    base: str = "",
) -> PriceDraft:
    """Change the given fields. A submitted draft returns to editing: a list that waits for approval never changes.

    `revision` is the one that the editor saw; if there is a newer one, the edit is refused.  Raises PriceDraftError.
    """
    with locked(PRICE_LIST, draft.pk, Action.EDITED, actor, revision) as row:
        problems = [] if name is None or name == row.name else _name_problems(name, row.pk)
        start = valid_from or row.valid_from
        problems += _start_problems(start) + _base_problems(base)
        prices = _checked(row.content if content is None else content, row.currency, problems)
        return proposal_revise(
            PRICE_LIST, row, subject=row.name if name is None else name,
            payload=_payload(row.currency, start, prices, base or _base_name(row)),
            reason=row.reason if reason is None else _words(reason), actor=actor, now=now,
        )  # fmt: skip


def price_draft_rebase(
    *, draft: PriceDraft, actor: str, now: datetime, reason: str | None = None, revision: int | None = None
) -> PriceDraft:
    """Rebase a draft on the list that it now follows: entries unchanged since its base become those of that list.

    Entries that the draft changed stay.  Raises PriceDraftError, also if nothing was published since.
    """
    with locked(PRICE_LIST, draft.pk, Action.EDITED, actor, revision) as row:
        base, current = base_of(row), price_version_before(row)
        if current is None or current == base:
            raise _refused("base", Message("%(name)s follows the list that it was begun from", name=row.name))
        known = version_content(base) if base is not None else {"gpu": [], "tokens": []}
        prices = _checked(rebased(row.content, known, version_content(current)), row.currency, [])
        return proposal_revise(
            PRICE_LIST, row, subject=row.name, payload=_payload(row.currency, row.valid_from, prices, current.name),
            reason=_words(reason) if reason else row.reason, actor=actor, now=now,
        )  # fmt: skip


def price_draft_submit(
    *, draft: PriceDraft, actor: str, now: datetime, reason: str | None = None, revision: int | None = None
) -> PriceDraft:
    """Submit a draft for approval by another person; it must have a reason.  Raises PriceDraftError."""
    with locked(PRICE_LIST, draft.pk, Action.SUBMITTED, actor, revision) as row:
        why = row.reason if reason is None else _words(reason)
        problems = _publication_problems(row, now)
        if not why:
            problems.append(FieldProblem(("reason",), Message("is missing: say why prices change, for the approver")))
        _checked(row.content, row.currency, problems)
        return proposal_submit(PRICE_LIST, row, actor=actor, now=now, reason=why)


def price_draft_approve(
    *, draft: PriceDraft, actor: str, now: datetime, reason: str = "", revision: int | None = None
) -> PriceVersion:
    """Publish a submitted draft; its makers may not.  `revision` is the one that the approver saw.

    Raises PriceDraftError, also if an input of a price changed since the submission.
    """
    row = approve(PRICE_LIST, draft.pk, actor=actor, now=now, comment=_words(reason), revision=revision)
    return PriceVersion.objects.get(draft=row)


def price_draft_reject(
    *, draft: PriceDraft, actor: str, reason: str, now: datetime, revision: int | None = None
) -> PriceDraft:
    """Reject a submitted draft with a reason; its makers may edit it and submit it again.  Raises PriceDraftError."""
    return reject(PRICE_LIST, draft.pk, actor=actor, now=now, comment=_words(reason), revision=revision)


def price_draft_withdraw(
    *, draft: PriceDraft, actor: str, now: datetime, reason: str = "", revision: int | None = None
) -> PriceDraft:
    """Withdraw a draft; it stays in the history and its name is free again.  Raises PriceDraftError."""
    return withdraw(PRICE_LIST, draft.pk, actor=actor, now=now, comment=_words(reason), revision=revision)


def _payload(currency: str, valid_from: datetime, prices: PriceList, base: str | None) -> dict[str, Any]:
    return {"currency": currency, "valid_from": instant_text(valid_from), "content": prices.content, "base": base}


def _base_name(row: PriceDraft) -> str | None:
    base = base_of(row)
    return base.name if base else None


def _base_problems(base: str) -> list[FieldProblem]:
    if not base or PriceVersion.objects.filter(name=base, sealed=True).exists():
        return []
    return [FieldProblem(("based_on",), Message("%(value)s is no published price list", value=shown(base)))]


def _words(reason: str) -> str:
    text = reason.strip()
    if "\0" in text or len(text) > MAX_REASON:
        raise _refused("reason", Message(
            "%(value)s must be text of up to %(limit)s characters", value=shown(text), limit=MAX_REASON
        ))
    return text


def _refused(name: str, text: Message) -> PriceDraftError:
    return PriceDraftError([FieldProblem((name,), text)])


def _checked(content: object, currency: str, problems: list[FieldProblem]) -> PriceList:
    """Return the prices; raise PriceDraftError with the given problems and those of the list."""
    try:
        prices = parse_price_list(content, currency=currency, sources=stored_sources())
    except PriceListError as error:
        raise PriceDraftError(problems + error.problems) from error
    problems = [*problems, *slice_problems(prices)]
    if problems:
        raise PriceDraftError(problems)
    return prices


def _lock_sheets(content: Mapping[str, Any]) -> None:
    """Lock the sheets of a list until this transaction ends; from then on they are evidence."""
    for part, model in (("gpu", CostSheet), ("tokens", TokenCostSheet)):
        names = [entry["cost_sheet"] for entry in content.get(part, ()) if "cost_sheet" in entry]
        list(model.objects.select_for_update().filter(name__in=names).order_by("id"))


def _name_problems(name: str, pk: int | None = None) -> list[FieldProblem]:
    text = None
    if not name.strip() or name != name.strip() or len(name) > MAX_NAME or not name.isprintable() or "/" in name:
        text = Message(
            "%(value)s must be printable text of 1 to %(limit)s characters, no slash, no spaces around it",
            value=shown(name), limit=MAX_NAME,
        )
    elif PriceVersion.objects.filter(name=name).exists():
        text = Message("%(value)s is published and never changes: give the draft a new name", value=shown(name))
    elif PriceDraft.objects.filter(subject=name).exclude(state=State.WITHDRAWN).exclude(pk=pk or 0).exists():
        text = Message("%(value)s is the name of another draft", value=shown(name))
    return [FieldProblem(("name",), text)] if text else []


def _start_problems(valid_from: datetime) -> list[FieldProblem]:
    if valid_from.tzinfo is None or not 2000 <= valid_from.year < 2200:
        return [FieldProblem(("valid_from",), Message(
            "%(value)s must be an instant with an offset, 2000 to 2199", value=valid_from.isoformat()
        ))]
    return []


def _past_problem(row: PriceDraft, now: datetime) -> Message | None:
    """Return the problem of a start that has passed; a start in the future, or in an open month, is no problem.

    A list submitted for the past is meant so; one whose start passed while it waited was meant for the future.
    """
    if row.valid_from > now:
        return None
    publish_lock()
    since = PRICE_LIST.open_since()
    if since is not None and row.valid_from < since:
        return Message(
            "%(value)s is in a closed month: lists begin at %(since)s or later",
            value=row.valid_from.isoformat(), since=since.astimezone(ZoneInfo(billing_setup().zone)).isoformat(),
        )
    if row.waits and row.submitted_at is not None and row.submitted_at < row.valid_from:
        return Message(
            "%(value)s has passed since the list was submitted: edit and submit it again, for it prices anew what was used "
            "since", value=row.valid_from.isoformat(),
        )
    return None


def _publication_problems(row: PriceDraft, now: datetime) -> list[FieldProblem]:
    """Return the problems that prevent publishing the draft at `now`, besides its prices."""
    problems = [] if not PriceVersion.objects.filter(name=row.name).exists() else _name_problems(row.name, row.pk)
    if row.currency != billing_setup().currency:
        problems.append(FieldProblem(("currency",), Message(
            "%(value)s is not what invoices are in any more", value=row.currency
        )))
    if (past := _past_problem(row, now)) is not None:
        problems.append(FieldProblem(("valid_from",), past))
    same = PriceVersion.objects.filter(valid_from=row.valid_from).first()
    # a list for the past may replace one with the same start
    if same is not None and row.valid_from > now:
        text = Message(
            "%(value)s is where %(name)s begins: choose another instant", value=row.valid_from.isoformat(), name=same.name
        )
        problems.append(FieldProblem(("valid_from",), text))
    return problems
