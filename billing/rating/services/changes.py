"""Retroactive changes: their validation, and the moment from which they count.

Their proposal and approval, and the consequences for issued documents, are in `billing.corrections.services.retroactive`.
"""

from datetime import UTC, datetime
from typing import Any

from billing.rates.selectors import rate_card
from billing.rating.models import RetroactiveChange
from billing.rating.selectors import closed_until, closed_window_around
from billing.tenancy.models import Team
from billing.usage.selectors import last_close_seq, last_sample
from metering.intervals import Interval
from metering.messages import Message, UserError
from pricing.fields import exact_number
from pricing.money import PRICE_PLACES, round_to

Kind = RetroactiveChange.Kind
NAME_LIMIT = 64


class ChangeError(UserError, ValueError):
    """Error: a retroactive change that cannot be made as requested."""

    code = "retroactive_change"


def change_checked(
    *, kind: str, name: str, fact: dict[str, Any], valid_from: datetime, valid_until: datetime | None, evidence: str = ""
) -> RetroactiveChange:
    """Validate a change for [valid_from, valid_until), or until the end of closed time, and return it unsaved.

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
    _check_name(name)
    return RetroactiveChange(
        kind=kind, name=name, valid_from=valid_from.astimezone(UTC), valid_until=until.astimezone(UTC),
        fact=_checked(kind, fact, Interval(valid_from, until)), evidence=evidence,
    )  # fmt: skip


def change_known(change: RetroactiveChange) -> None:
    """Make an approved change count from now on, in the calling transaction.

    The caller holds the shared ingest lock (for samples: the exclusive one).
    """
    # numbered by approval: of two changes of one fact the later one counts
    last = RetroactiveChange.objects.order_by("-change_seq").exclude(change_seq=None).first()
    change.change_seq = (last.change_seq or 0) + 1 if last else 1
    change.epoch = last_close_seq()
    if change.kind == Kind.EFFICIENCY:
        change.last_sample = last_sample()
    change.save(update_fields=["change_seq", "epoch", "last_sample"])


def _checked(kind: str, fact: dict[str, Any], when: Interval) -> dict[str, Any]:
    if kind == Kind.PRICE:
        return _prices(fact, when)
    if kind in (Kind.NAMESPACE, Kind.CONSUMER):
        return _owner(fact)
    if kind == Kind.EFFICIENCY:
        _check_whole_months(when)
        return {}
    raise ChangeError(Message("kind %(kind)s is none of %(names)s", kind=repr(kind), names=", ".join(Kind.values)))


def _check_whole_months(when: Interval) -> None:
    """Raise ChangeError if the interval cuts a closed month.

    A job is judged by all samples of its month: those of some days cannot count without the others.
    """
    for at in (when.start, when.end):
        if (month := closed_window_around(at)) is not None:
            raise ChangeError(Message(
                "%(at)s: late samples count for whole months, the one from %(start)s until %(end)s would be cut",
                at=at.isoformat(), start=month.start.isoformat(), end=month.end.isoformat(),
            ))


def _check_name(name: str) -> None:
    # on lines '+' joins the name of a price version with that of a correction
    if not name.strip() or len(name) > NAME_LIMIT or "+" in name or not name.isprintable():
        raise ChangeError(Message(
            "name %(name)s: must be 1 to %(limit)s printable characters without '+'",
            name=repr(name[:NAME_LIMIT]), limit=NAME_LIMIT,
        ))
    if RetroactiveChange.objects.filter(name=name).exists():
        raise ChangeError(Message("name %(name)s is taken by another change", name=repr(name)))


def _prices(fact: dict[str, Any], when: Interval) -> dict[str, Any]:
    """Return the corrected prices, normalized; only prices of the lists in force can be corrected.  Raises ChangeError."""
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
