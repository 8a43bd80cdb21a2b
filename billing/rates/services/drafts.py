"""Drafts of price lists: written, submitted, then approved by somebody else, which publishes them; or sent back.

Whoever writes or submits a draft is one of its makers, and no maker approves it: refused here with a sentence, and by the
database whatever else happens. Every step is kept with the list as it then was, and stands in the audit log.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from billing.rates.models import CostSheet, PriceDraft, PriceDraftStep, PriceVersion, TokenCostSheet
from billing.rates.price_list import PriceList, PriceListError, parse_price_list
from billing.rates.selectors import draft_fingerprint, notice_of, stored_sources
from billing.rates.services.publishing import PriceVersionInput, price_version_publish
from billing.rates.services.sheets import RateError
from billing.tenancy.access import same_person
from billing.tenancy.audit import audit_record
from billing.tenancy.selectors import billing_setup
from metering.messages import Message
from pricing.fields import FieldProblem, path_text, shown

State, Action = PriceDraft.State, PriceDraftStep.Action
MAX_NAME = 200
MAX_REASON = 2000
STATES = {
    State.DRAFT: Message("being written"), State.SUBMITTED: Message("waits for a second person"),
    State.APPROVED: Message("published"), State.REJECTED: Message("sent back with a reason"),
    State.WITHDRAWN: Message("given up"),
}  # fmt: skip
EDITABLE = (State.DRAFT, State.SUBMITTED, State.REJECTED)


class PriceDraftError(RateError):
    """A draft that cannot be stored, submitted or decided. `problems` has one entry per bad field."""

    code = "price_draft"

    def __init__(self, problems: list[FieldProblem]) -> None:
        self.problems = problems
        super().__init__(Message.joined(problem.message for problem in problems))

    @property
    def by_field(self) -> dict[str, list[str]]:
        """The messages by field, as an HTTP API tells them."""
        told: dict[str, list[str]] = {}
        for problem in self.problems:
            told.setdefault(path_text(problem.path), []).append(str(problem.text))
        return told


def price_draft_create(
    *, name: str, valid_from: datetime, content: Mapping[str, Any], actor: str, now: datetime, reason: str = ""
) -> PriceDraft:
    """Store a new draft of a complete price list: `content` is {"gpu": [...], "tokens": [...]} as in the set-up file.

    Raises PriceDraftError with every bad field.
    """
    currency = billing_setup().currency
    problems = _name_problems(name) + _start_problems(valid_from)
    prices = _checked(content, currency, problems)
    draft = PriceDraft(
        name=name, currency=currency, valid_from=valid_from, content=prices.content, reason=_words(reason), makers=[actor],
        created_by=actor,
    )  # fmt: skip
    try:
        with transaction.atomic():
            draft.save()
            _note(draft, Action.CREATED, actor, now, draft.reason)
    except IntegrityError as error:
        raise _refused("name", Message("%(value)s is the name of another draft", value=shown(name))) from error
    return draft


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
) -> PriceDraft:
    """Change what is given. A submitted draft comes back with it: what waits for approval is never changed.

    `revision` is the one that the editor saw; another one by now is refused.  Raises PriceDraftError.
    """
    with _locked(draft, revision) as row:
        _refuse_state(row, EDITABLE, Message("changed"))
        problems = [] if name is None or name == row.name else _name_problems(name, row.pk)
        problems += _start_problems(valid_from or row.valid_from)
        row.content = _checked(row.content if content is None else content, row.currency, problems).content
        row.name = row.name if name is None else name
        row.valid_from = valid_from or row.valid_from
        row.reason = row.reason if reason is None else _words(reason)
        row.revision += 1
        row.state = State.DRAFT
        row.makers = _with(row.makers, actor)
        row.submitted_by = row.submitted_sha256 = row.decided_by = row.decision_reason = ""
        row.submitted_at = row.decided_at = None
        _store(row, Action.EDITED, actor, now, row.reason)
        return row


def price_draft_submit(
    *, draft: PriceDraft, actor: str, now: datetime, reason: str | None = None, revision: int | None = None
) -> PriceDraft:
    """Hand a draft over for approval by somebody else; it must say why prices change.  Raises PriceDraftError."""
    with _locked(draft, revision) as row:
        _refuse_state(row, (State.DRAFT,), Message("submitted"))
        row.reason = row.reason if reason is None else _words(reason)
        problems = _publication_problems(row, now)
        if not row.reason:
            problems.append(FieldProblem(("reason",), Message("is missing: say why prices change, for whoever approves")))
        prices = _checked(row.content, row.currency, problems)
        row.state, row.submitted_by, row.submitted_at = State.SUBMITTED, actor, now
        row.submitted_sha256 = draft_fingerprint(row, prices)
        row.makers = _with(row.makers, actor)
        _store(row, Action.SUBMITTED, actor, now, row.reason, {"notice_business_days": notice_of(row, now)})
        return row


def price_draft_approve(
    *, draft: PriceDraft, actor: str, now: datetime, reason: str = "", revision: int | None = None
) -> PriceVersion:
    """Publish a submitted draft: nobody who made it may.  `revision` is the one that the approver looked at.

    Raises PriceDraftError, also where an input of a price changed since the submission.
    """
    with _locked(draft, revision) as row:
        _refuse_state(row, (State.SUBMITTED,), Message("approved"))
        _refuse_maker(row, actor)
        problems = _publication_problems(row, now)
        _hold_sheets(row.content)
        prices = _checked(row.content, row.currency, problems)
        if draft_fingerprint(row, prices) != row.submitted_sha256:
            raise _refused("content", Message("a cost sheet of it changed after the submission: edit and submit it again"))
        wanted = PriceVersionInput(
            row.name, row.currency, row.valid_from, prices.gpu, prices.tokens, prices.token_sheets
        )
        price_version_publish(wanted=wanted, actor=actor, origin=f"draft {row.pk} of {', '.join(row.makers)}")
        row.version = PriceVersion.objects.get(name=row.name)
        row.state, row.decided_by, row.decided_at, row.decision_reason = State.APPROVED, actor, now, _words(reason)
        detail = {"notice_business_days": notice_of(row, now), "submitted_by": row.submitted_by}
        _store(row, Action.APPROVED, actor, now, row.decision_reason, detail)
        return row.version


def price_draft_reject(
    *, draft: PriceDraft, actor: str, reason: str, now: datetime, revision: int | None = None
) -> PriceDraft:
    """Send a submitted draft back with a reason; its makers may edit it and submit it again.  Raises PriceDraftError."""
    with _locked(draft, revision) as row:
        _refuse_state(row, (State.SUBMITTED,), Message("rejected"))
        _refuse_maker(row, actor)
        if not reason.strip():
            raise _refused("reason", Message("is missing: say what is wrong, for whoever wrote the draft"))
        row.state, row.decided_by, row.decided_at, row.decision_reason = State.REJECTED, actor, now, _words(reason)
        _store(row, Action.REJECTED, actor, now, row.decision_reason)
        return row


def price_draft_withdraw(
    *, draft: PriceDraft, actor: str, now: datetime, reason: str = "", revision: int | None = None
) -> PriceDraft:
    """Give a draft up; it stays in the history and its name is free again.  Raises PriceDraftError."""
    with _locked(draft, revision) as row:
        _refuse_state(row, EDITABLE, Message("withdrawn"))
        row.state = State.WITHDRAWN
        _store(row, Action.WITHDRAWN, actor, now, _words(reason))
        return row


@contextmanager
def _locked(draft: PriceDraft, revision: int | None) -> Iterator[PriceDraft]:
    """The draft's row, locked, inside a transaction of its own."""
    with transaction.atomic():
        row = PriceDraft.objects.select_for_update(of=("self",)).get(pk=draft.pk)
        if revision is not None and revision != row.revision:
            raise _refused("revision", Message(
                "%(value)s is not the newest: the draft is at %(revision)s by now", value=revision, revision=row.revision
            ))
        yield row


def _words(reason: str) -> str:
    """The reason as it is kept."""
    text = reason.strip()
    if "\0" in text or len(text) > MAX_REASON:
        raise _refused("reason", Message(
            "%(value)s must be text of up to %(limit)s characters", value=shown(text), limit=MAX_REASON
        ))
    return text


def _refused(name: str, text: Message) -> PriceDraftError:
    return PriceDraftError([FieldProblem((name,), text)])


def _with(makers: list[str], actor: str) -> list[str]:
    return makers if actor in makers else [*makers, actor]


def _refuse_state(row: PriceDraft, allowed: tuple[str, ...], verb: Message) -> None:
    if row.state not in allowed:
        raise _refused("state", Message(
            "%(name)s is %(state)s and cannot be %(verb)s", name=row.name, state=STATES[row.state], verb=verb
        ))


def _refuse_maker(row: PriceDraft, actor: str) -> None:
    if any(same_person(actor, maker) for maker in row.makers):
        raise _refused("actor", Message(
            "%(actor)s made %(name)s: a second person decides on it, who did not write or submit it",
            actor=actor, name=row.name,
        ))


def _checked(content: object, currency: str, problems: list[FieldProblem]) -> PriceList:
    """The prices; raises with the problems found before and those of the list."""
    try:
        prices = parse_price_list(content, currency=currency, sources=stored_sources())
    except PriceListError as error:
        raise PriceDraftError(problems + error.problems) from error
    if problems:
        raise PriceDraftError(problems)
    return prices


def _hold_sheets(content: Mapping[str, Any]) -> None:
    """Keep the sheets of a list as they are until this transaction ends; from then on they are evidence."""
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
    elif PriceDraft.objects.filter(name=name).exclude(state=State.WITHDRAWN).exclude(pk=pk).exists():
        text = Message("%(value)s is the name of another draft", value=shown(name))
    return [FieldProblem(("name",), text)] if text else []


def _start_problems(valid_from: datetime) -> list[FieldProblem]:
    if valid_from.tzinfo is None or not 2000 <= valid_from.year < 2200:
        return [FieldProblem(("valid_from",), Message(
            "%(value)s must be an instant with an offset, 2000 to 2199", value=valid_from.isoformat()
        ))]
    return []


def _publication_problems(row: PriceDraft, now: datetime) -> list[FieldProblem]:
    """What stands against publishing the draft at `now`, besides its prices."""
    problems = [] if not PriceVersion.objects.filter(name=row.name).exists() else _name_problems(row.name, row.pk)
    if row.currency != billing_setup().currency:
        problems.append(FieldProblem(("currency",), Message(
            "%(value)s is not what invoices are in any more", value=row.currency
        )))
    if row.valid_from <= now:
        text = Message(
            "%(value)s has passed: prices are published for an instant to come", value=row.valid_from.isoformat()
        )
        problems.append(FieldProblem(("valid_from",), text))
    same = PriceVersion.objects.filter(valid_from=row.valid_from).first()
    if same is not None:
        text = Message(
            "%(value)s is where %(name)s begins: choose another instant", value=row.valid_from.isoformat(), name=same.name
        )
        problems.append(FieldProblem(("valid_from",), text))
    return problems


def _store(
    row: PriceDraft, action: str, actor: str, now: datetime, reason: str, detail: Mapping[str, Any] | None = None
) -> None:
    try:
        with transaction.atomic():
            row.save()
            _note(row, action, actor, now, reason, detail)
    except IntegrityError as error:
        raise _refused("name", Message("%(value)s is the name of another draft", value=shown(row.name))) from error


def _note(
    row: PriceDraft, action: str, actor: str, now: datetime, reason: str, detail: Mapping[str, Any] | None = None
) -> None:
    PriceDraftStep.objects.create(
        draft=row, at=now, actor=actor, action=action, revision=row.revision, reason=reason, valid_from=row.valid_from,
        content=row.content,
    )  # fmt: skip
    told = {
        "draft": row.pk, "revision": row.revision, "valid_from": row.valid_from.isoformat(), "makers": row.makers,
        "reason": reason, "sha256": row.submitted_sha256, **(detail or {}),
    }  # fmt: skip
    audit_record(actor=actor, action=f"price_draft_{action}", subject=row.name, detail=told)
