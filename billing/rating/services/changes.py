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
from pricing.fields import exact_number
from pricing.money import PRICE_PLACES, round_to

Kind, Status = RetroactiveChange.Kind, RetroactiveChange.Status
NAME_LIMIT = 64


class ChangeError(ValueError):
    """A change of closed time that cannot be made as asked."""


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
        raise ChangeError("nothing is closed yet: change the fact itself with `manage.py apply`")
    until = valid_until or end
    if not valid_from < until <= end:
        raise ChangeError(
            f"from {valid_from.isoformat()} until {until.isoformat()}: must lie in closed time, which ends at "
            f"{end.isoformat()}; what is still open is changed with `manage.py apply`"
        )
    if not reason.strip():
        raise ChangeError("a change of closed time needs a reason")
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
    raise ChangeError(f"kind {kind!r} is none of {', '.join(Kind.values)}")


def _told(change: RetroactiveChange) -> dict[str, Any]:
    return {
        "kind": change.kind, "fact": change.fact, "reason": change.reason, "evidence": change.evidence,
        "valid_from": change.valid_from.isoformat(), "valid_until": change.valid_until.isoformat(),
    }  # fmt: skip


def _check_name(name: str) -> None:
    if not name.strip() or len(name) > NAME_LIMIT or "+" in name or not name.isprintable():
        raise ChangeError(f"name {name[:NAME_LIMIT]!r}: must be 1 to {NAME_LIMIT} printable characters without '+'")
    if RetroactiveChange.objects.filter(name=name).exists():
        raise ChangeError(f"name {name!r} is taken by another change")


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
        raise ChangeError("name at least one price to correct")
    known_gpu = {(price.accelerator, price.resource) for version in versions for price in version.gpu}
    known_tokens = {key for version in versions for key in version.tokens}
    for item in gpu:
        if (item["accelerator"], item["resource"]) not in known_gpu:
            sku = item["resource"] or item["accelerator"]
            raise ChangeError(f"{sku}: no price list in force then has a price of it")
    for item in tokens:
        if (item["model"], item["token_class"]) not in known_tokens:
            raise ChangeError(f"{item['model']} {item['token_class']}: no price list in force then has a price of it")
    return {"gpu": gpu, "tokens": tokens}


def _overlaps(start: datetime, end: datetime | None, when: Interval) -> bool:
    return start < when.end and (end is None or end > when.start)


def _price(item: dict[str, Any]) -> str:
    price = exact_number(str(item["price"]))
    if price is None:
        raise ChangeError(f"price {item['price']!r} is not a decimal")
    if price < 0 or round_to(price, PRICE_PLACES) != price:
        raise ChangeError(f"price {item['price']} must be 0 or more, with at most {PRICE_PLACES} decimals")
    return format(round_to(price, PRICE_PLACES), "f")


def _owner(fact: dict[str, Any]) -> dict[str, Any]:
    team = Team.objects.filter(code=fact["team"], is_group=False).first()
    if team is None:
        raise ChangeError(f"team {fact['team']!r}: there is no such team")
    for field in ("scope", "name"):
        if not str(fact[field]).strip():
            raise ChangeError(f"{field} is missing")
    return {"scope": fact["scope"], "name": fact["name"], "team": team.code, "onwards": bool(fact.get("onwards"))}


def change_acknowledge(*, change_id: int, team: str, actor: str, now: datetime) -> RetroactiveChange:
    """Note that a team knows what is about to be moved to or from it.  Raises ChangeError."""
    with transaction.atomic():
        change = proposed(change_id)
        if not Team.objects.filter(code=team, is_group=False).exists():
            raise ChangeError(f"team {team!r}: there is no such team")
        if same_person(actor, change.requested_by):
            raise ChangeError(f"{actor} asked for {change.name}: somebody else must take note of it for {team}")
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
        raise ChangeError("say why the change is rejected")
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
        raise ChangeError(f"change {change_id}: there is none of that id")
    if change.status != Status.PROPOSED:
        raise ChangeError(f"change {change.name} is {change.status} already")
    return change
