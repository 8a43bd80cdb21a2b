"""Changes of facts of closed time: proposed by one person, taken note of by the teams, approved by another.

What follows for issued documents is the business of `billing.corrections.services.retroactive`, which calls these in one
transaction with the notes that correct them.
"""

from datetime import datetime
from typing import Any

from django.db import transaction

from billing.rates.selectors import rate_card
from billing.rating.models import RetroactiveChange
from billing.rating.selectors import closed_until
from billing.tenancy.access import same_person
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.usage.selectors import last_ordinal, last_sample
from metering.intervals import Interval
from metering.messages import Message, UserError
from pricing.fields import exact_number
from pricing.money import PRICE_PLACES, round_to

Kind, Status = RetroactiveChange.Kind, RetroactiveChange.Status
NAME_LIMIT = 64


class ChangeError(UserError, ValueError):
    """A change of closed time that cannot be made as asked."""

    code = "retroactive_change"


def change_propose(
    *,
    kind: str,
    name: str,
    fact: dict[str, Any],
    valid_from: datetime,
    valid_until: datetime | None,
    reason: str,
    evidence: str,
    actor: str,
    now: datetime,
) -> RetroactiveChange:
    """Store what should have been in [valid_from, valid_until), or until the end of closed time; nothing moves yet.

    fact: for prices {"gpu": [{accelerator, resource, price}], "tokens": [{model, token_class, price}]}, for owners
    {"scope", "name", "team", "onwards"}, for late efficiency samples nothing.  Raises ChangeError.
    """
    end = closed_until()
    if end is None:
        raise ChangeError(Message("nothing is closed yet: change the fact itself with `manage.py apply`"))
    until = valid_until or end
    if not valid_from < until <= end:
        raise ChangeError(Message(
            "from %(valid_from)s until %(until)s: must lie in closed time, which ends at %(end)s; what is still open "
            "is changed with `manage.py apply`",
            valid_from=valid_from.isoformat(), until=until.isoformat(), end=end.isoformat(),
        ))
    if not reason.strip():
        raise ChangeError(Message("a change of closed time needs a reason"))
    _check_name(name)
    checked = _checked(kind, fact, Interval(valid_from, until))
    with transaction.atomic():
        change = RetroactiveChange.objects.create(
            kind=kind, name=name, valid_from=valid_from, valid_until=until, fact=checked, reason=reason,
            evidence=evidence, requested_by=actor, requested_at=now,
        )  # fmt: skip
        audit_record(actor=actor, action="change_propose", subject=name, detail=_told(change))
    return change


def _checked(kind: str, fact: dict[str, Any], when: Interval) -> dict[str, Any]:
    if kind == Kind.PRICE:
        return _prices(fact, when)
    if kind in (Kind.NAMESPACE, Kind.CONSUMER):
        return _owner(fact)
    if kind == Kind.EFFICIENCY:
        return {}
    raise ChangeError(Message("kind %(kind)s is none of %(names)s", kind=repr(kind), names=", ".join(Kind.values)))


def _told(change: RetroactiveChange) -> dict[str, Any]:
    return {
        "kind": change.kind, "fact": change.fact, "reason": change.reason, "evidence": change.evidence,
        "valid_from": change.valid_from.isoformat(), "valid_until": change.valid_until.isoformat(),
    }  # fmt: skip


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > NAME_LIMIT or "+" in name or not name.isprintable():
        raise ChangeError(Message(
            "name %(name)s: must be 1 to %(limit)s printable characters without '+'",
            name=repr(name[:NAME_LIMIT]), limit=NAME_LIMIT,
        ))
    if RetroactiveChange.objects.filter(name=name).exists():
        raise ChangeError(Message("name %(name)s is taken by another change", name=repr(name)))


def _prices(fact: dict[str, Any], when: Interval) -> dict[str, Any]:
    """Only prices that the lists in force name can be corrected."""
    versions = [version for version in rate_card().versions if _overlaps(version.valid_from, version.valid_until, when)]
    gpu = [
        {"accelerator": item.get("accelerator", ""), "resource": item.get("resource", ""), "price": _price(item)}
        for item in fact.get("gpu", [])
    ]
    tokens = [
        {"model": item["model"], "token_class": item["token_class"], "price": _price(item)}
        for item in fact.get("tokens", [])
    ]
    if not gpu and not tokens:
        raise ChangeError(Message("name at least one price to correct"))
    known_gpu = {(price.accelerator, price.resource) for version in versions for price in version.gpu}
    known_tokens = {key for version in versions for key in version.tokens}
    for item in gpu:
        if (item["accelerator"], item["resource"]) not in known_gpu:
            sku = item["resource"] or item["accelerator"]
            raise ChangeError(Message("%(sku)s: no price list in force then has a price of it", sku=sku))
    for item in tokens:
        if (item["model"], item["token_class"]) not in known_tokens:
            raise ChangeError(Message(
                "%(model)s %(token_class)s: no price list in force then has a price of it",
                model=item["model"], token_class=item["token_class"],
            ))
    return {"gpu": gpu, "tokens": tokens}


def _overlaps(start: datetime, end: datetime | None, when: Interval) -> bool:
    return start < when.end and (end is None or end > when.start)


def _price(item: dict[str, Any]) -> str:
    price = exact_number(str(item["price"]))
    if price is None:
        raise ChangeError(Message("price %(price)s is not a decimal", price=repr(item["price"])))
    if price < 0 or round_to(price, PRICE_PLACES) != price:
        raise ChangeError(Message(
            "price %(price)s must be 0 or more, with at most %(places)s decimals", price=item["price"], places=PRICE_PLACES
        ))
    return format(round_to(price, PRICE_PLACES), "f")


def _owner(fact: dict[str, Any]) -> dict[str, Any]:
    team = Team.objects.filter(code=fact["team"], is_group=False).first()
    if team is None:
        raise ChangeError(Message("team %(code)s: there is no such team", code=repr(fact["team"])))
    for field in ("scope", "name"):
        if not str(fact[field]).strip():
            raise ChangeError(Message("%(field)s is missing", field=field))
    return {"scope": fact["scope"], "name": fact["name"], "team": team.code, "onwards": bool(fact.get("onwards"))}


def change_acknowledge(*, change_id: int, team: str, actor: str, now: datetime) -> RetroactiveChange:
    """Note that a team knows what is about to be moved to or from it.  Raises ChangeError."""
    with transaction.atomic():
        change = proposed(change_id)
        if not Team.objects.filter(code=team, is_group=False).exists():
            raise ChangeError(Message("team %(code)s: there is no such team", code=repr(team)))
        if same_person(actor, change.requested_by):
            raise ChangeError(Message(
                "%(actor)s asked for %(name)s: somebody else must take note of it for %(team)s",
                actor=actor, name=change.name, team=team,
            ))
        change.acknowledged[team] = {"by": actor, "at": now.isoformat()}
        change.save(update_fields=["acknowledged"])
        audit_record(actor=actor, action="change_acknowledge", subject=change.name, detail={"team": team})
    return change


def change_approve(*, change: RetroactiveChange, actor: str, persons: int, now: datetime) -> bool:
    """Say yes to a change, in the calling transaction; True once enough `persons` did and it is a fact from now on.

    The caller has locked the change, entered the epoch (for samples: frozen usage) and checked who may approve.
    """
    change.approvers = [*change.approvers, *([] if any(same_person(actor, one) for one in change.approvers) else [actor])]
    audit_record(actor=actor, action="change_approve", subject=change.name, detail=_told(change))
    if len(change.approvers) < persons:
        change.save(update_fields=["approvers"])
        return False
    last = RetroactiveChange.objects.order_by("-ordinal").exclude(ordinal=None).first()
    change.ordinal = (last.ordinal or 0) + 1 if last else 1
    change.epoch, change.status, change.decided_at = last_ordinal(), Status.APPROVED, now
    if change.kind == Kind.EFFICIENCY:
        change.last_sample = last_sample()
    change.save(update_fields=["approvers", "ordinal", "epoch", "status", "decided_at", "last_sample"])
    return True


def change_reject(*, change_id: int, actor: str, reason: str, now: datetime) -> RetroactiveChange:
    """Turn a proposed change down.  Raises ChangeError."""
    if not reason.strip():
        raise ChangeError(Message("say why the change is rejected"))
    with transaction.atomic():
        change = proposed(change_id)
        change.status, change.decision, change.decided_at = Status.REJECTED, reason, now
        change.save(update_fields=["status", "decision", "decided_at"])
        audit_record(actor=actor, action="change_reject", subject=change.name, detail={"reason": reason})
    return change


def proposed(change_id: int) -> RetroactiveChange:
    """A change that is not decided, locked until the calling transaction ends.  Raises ChangeError."""
    change = RetroactiveChange.objects.select_for_update().filter(pk=change_id).first()
    if change is None:
        raise ChangeError(Message("change %(number)s: there is none of that id", number=change_id))
    if change.status != Status.PROPOSED:
        raise ChangeError(Message("change %(name)s is %(status)s already", name=change.name, status=change.status))
    return change
