"""What a closed month was rated from and what came of it, as one fingerprint: while it is equal, so are the charges.

It takes in whatever `rate_period` reads: usage known before the close, owners of the names that it stands under, prices,
policies, commitments and corrections as far as they reach into the windows that the close billed, what pools offered; and
the stored charges. Facts are cut at the bounds of those windows, so that what begins or ends later changes nothing.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from django.db import connection
from django.db.models import Model

from billing.rates.models import (
    AllocationPolicy,
    CarbonFactors,
    Commitment,
    EfficiencyPolicy,
    GpuPrice,
    InterruptionPolicy,
    PriceVersion,
    TokenPrice,
)
from billing.rates.selectors import rate_card
from billing.rating.models import PoolCapacity, RetroactiveChange
from billing.tenancy.ownership import OwnershipBook, OwnershipRow
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.usage.fingerprints import Name, names_before, usage_fingerprint
from billing.usage.models import Close
from billing.usage.selectors import close_before, late_windows
from metering.intervals import Interval
from pricing.rate_card import RateCard

FORM: Final = 2
"""Raise it where the way of taking the fingerprint changes."""
DATED: Final[tuple[type[Model], ...]] = (PriceVersion, EfficiencyPolicy, AllocationPolicy, CarbonFactors, Commitment)
CHARGES: Final = """SELECT coalesce(sum(hash_record_extended(ROW(line_key, usage_quantity, unit_price), 0)), 0), count(*)
    FROM rating_charge WHERE closing = %s"""
Row = dict[str, Any]
Names = tuple[Sequence[Name], Sequence[Name]]
"""(cluster, namespace) and (source, consumer) of the usage of a close."""


@dataclass(frozen=True)
class Facts:
    """Every owner, price, policy, correction and closed window there is, read once for all months."""

    owners: tuple[OwnershipBook, OwnershipBook]
    dated: Mapping[str, list[Row]]
    whole: list[Row]
    prices: Mapping[str, list[list[str]]]
    changes: Sequence[RetroactiveChange]
    standing: Sequence[Close]
    card: RateCard


def facts_now() -> Facts:
    """The facts as they are in the calling transaction."""
    return Facts(
        (namespace_book(), consumer_book()),
        {model.__name__: list(model._default_manager.order_by("pk").values()) for model in DATED},
        list(InterruptionPolicy.objects.order_by("pk").values()),  # what ended after a window decides of time within it
        _prices(), list(RetroactiveChange.objects.exclude(epoch=None).order_by("ordinal")),
        list(Close.objects.filter(withdrawn_at=None).order_by("ordinal")), rate_card(),
    )  # fmt: skip


def _prices() -> dict[str, list[list[str]]]:
    """The prices of every version, by its name."""
    found: dict[str, list[list[str]]] = {}
    names = dict(PriceVersion.objects.values_list("pk", "name"))
    for model in (GpuPrice, TokenPrice):
        for row in model._default_manager.order_by("pk").values():
            version = names[row.pop("version_id")]
            row.pop("id")
            found.setdefault(version, []).append([str(value) for value in row.values()])
    return found


def names_of(window: Interval, closing: int) -> Names:
    """The names of all usage that a close billed, late usage of earlier windows included."""
    namespaces, consumers = set[Name](), set[Name]()
    for part in _windows(window, closing):
        held, told = names_before(part, closing)
        namespaces.update(held)
        consumers.update(told)
    return sorted(namespaces), sorted(consumers)


def _windows(window: Interval, closing: int) -> list[Interval]:
    return [window, *(Interval(late.start, late.end) for late in late_windows(closing))]


def fingerprint(facts: Facts, *, window: Interval, zone: str, closing: int, names: Names) -> str:
    """SHA-256 over what the `closing`-th close of a window was rated from, and its stored charges.

    names: of its usage, by `names_of`; they need no asking again, for other names would be other usage.
    """
    windows = _windows(window, closing)
    reach = Interval(min(part.start for part in windows), max(part.end for part in windows))
    changes = [one for one in facts.changes if one.epoch is not None and one.epoch < closing]
    made_of = {
        "form": FORM, "zone": zone, "closing": closing, "before": close_before(closing),
        "windows": [[one.start, one.end] for one in windows],
        "standing": [[one.ordinal, one.start, one.end] for one in facts.standing if one.ordinal <= closing],
        "usage": [
            usage_fingerprint(
                one, before=closing, last_sample=_last_sample(changes, one), events=_by_request(facts.card, one)
            )
            for one in windows
        ],
        "owners": [
            [[*name, _owners(book, name, reach)] for name in used]
            for book, used in zip(facts.owners, names, strict=True)
        ],
        "cuts": sorted(at for book in facts.owners for at in book.changes() if reach.start < at < reach.end),
        "facts": {name: _dated(rows, reach, facts.prices) for name, rows in facts.dated.items()},
        "whole": facts.whole,
        "changes": [_change(one) for one in changes],
        "offered": list(PoolCapacity.objects.filter(closing=closing).values_list("cluster", "accelerator", "capacity_us")),
        "charges": _charges(closing),
    }  # fmt: skip
    return sha256(json.dumps(made_of, sort_keys=True, default=str).encode()).hexdigest()


def _last_sample(changes: Iterable[RetroactiveChange], window: Interval) -> int:
    """The last efficiency sample that counts for a window although it came after its close; 0 for none."""
    late = (one for one in changes if Interval(one.valid_from, one.valid_until).overlap(window))
    return max((one.last_sample or 0 for one in late), default=0)


def _by_request(card: RateCard, window: Interval) -> bool:
    return any(card.context_bounds(piece.start) for piece in window.cut(card.changes()))


def _owners(book: OwnershipBook, name: Name, reach: Interval) -> list[list[Any]]:
    """Whom a name may belong to, the first that covers an instant wins; cut at the bounds."""
    return [
        [row.owner.team, row.owner.platform, *_cut(row, reach)]
        for row in book.rows_of(*name)
        if _reaches(row.valid_from, row.valid_until, reach)
    ]


def _cut(row: OwnershipRow, reach: Interval) -> tuple[datetime | None, datetime | None]:
    return _bound(row.valid_from, reach), _bound(row.valid_until, reach)


def _bound(at: datetime | None, reach: Interval) -> datetime | None:
    """An instant where it cuts the windows, else None."""
    return at if at is not None and reach.start < at < reach.end else None


def _reaches(start: datetime | None, end: datetime | None, reach: Interval) -> bool:
    return (start is None or start < reach.end) and (end is None or end > reach.start)


def _dated(rows: Iterable[Row], reach: Interval, prices: Mapping[str, list[list[str]]]) -> list[Row]:
    found = []
    for row in rows:
        if _reaches(row["valid_from"], row["valid_until"], reach):
            told = {name: value for name, value in row.items() if name != "id"}
            told |= {name: _bound(row[name], reach) for name in ("valid_from", "valid_until")}
            found.append(told | {"prices": prices.get(row.get("name", ""), [])})
    return found


def _change(change: RetroactiveChange) -> list[Any]:
    return [change.kind, change.name, change.valid_from, change.valid_until, change.fact, change.last_sample, change.ordinal]


def _charges(closing: int) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(CHARGES, [closing])
        return [str(value) for value in cursor.fetchone()]
