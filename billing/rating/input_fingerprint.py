"""Input fingerprint of a month: while it is equal, `rate_period` gives the same result.

It covers whatever `rate_period` reads: usage known before the close, owners, prices, policies, commitments and
corrections as far as they reach into the windows that the close bills, capacity of pools, and the teams in showback.
Facts are cut at the bounds of those windows, so that a fact that begins or ends later changes nothing.

For a month that is not cut off yet, everything counts as it is known now, and so does the code that rates. For a closed
month only the owners of names with usage count, and its stored charges, which must follow from the rest again. Its
billing modes never change.
"""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path
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
from billing.rating.allocation import capacity_of
from billing.rating.gathering import gather_limit
from billing.rating.models import RetroactiveChange
from billing.rating.reference_data import ReferenceData
from billing.rating.selectors import reference_data_with
from billing.tenancy.models import BillingMode, ConsumerOwnership, NamespaceOwnership
from billing.tenancy.ownership import OwnershipBook, OwnershipRow
from billing.tenancy.selectors import consumer_book, namespace_book
from billing.tenancy.showback import BillingModes, billing_modes
from billing.usage.fingerprints import names_before, usage_fingerprint
from billing.usage.models import Close, NodeCapacity
from billing.usage.selectors import close_before, last_close_seq, late_windows
from billing.usage.store.hours import Name
from metering.intervals import Interval, month_of
from pricing.rate_card import RateCard

FORM: Final = 3
"""Version of the fingerprint's format; raise it whenever the computation of the fingerprint changes."""
DATED: Final[tuple[type[Model], ...]] = (PriceVersion, EfficiencyPolicy, AllocationPolicy, CarbonFactors, Commitment)
REFERENCE_DATA: Final[tuple[type[Model], ...]] = (
    *DATED, InterruptionPolicy, GpuPrice, TokenPrice, RetroactiveChange, NamespaceOwnership, ConsumerOwnership,
    BillingMode, NodeCapacity,
)
CHARGES: Final = """SELECT coalesce(sum(hash_record_extended(ROW(line_key, usage_quantity, unit_price), 0)), 0), count(*)
    FROM rating_charge WHERE close_seq = %s"""
Row = dict[str, Any]
Names = tuple[Sequence[Name], Sequence[Name]]
"""(cluster, namespace) and (source, consumer) of the usage of a close."""


@dataclass(frozen=True)
class Facts:
    """Owners, prices, policies, corrections and closed windows, read once for all months."""

    owners: tuple[OwnershipBook, OwnershipBook]
    dated: Mapping[str, list[Row]]
    whole: list[Row]
    prices: Mapping[str, list[list[str]]]
    changes: Sequence[RetroactiveChange]
    standing: Sequence[Close]
    card: RateCard
    modes: BillingModes


def facts_now() -> Facts:
    """Read the facts as they are in the calling transaction."""
    return Facts(
        (namespace_book(), consumer_book()),
        {model.__name__: list(model._default_manager.order_by("pk").values()) for model in DATED},
        # not cut to windows: an interruption after a window decides on time within it
        [dict(row) for row in InterruptionPolicy.objects.order_by("pk").values()],
        _prices(), list(RetroactiveChange.objects.exclude(epoch=None).order_by("change_seq")),
        list(Close.objects.filter(withdrawn_at=None).order_by("close_seq")), rate_card(), billing_modes(),
    )  # fmt: skip


def reference_data_lock() -> None:
    """Block changes of owners, prices, policies and capacity until the calling transaction ends; usage has its own lock."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT suanpan_lock_shared(%s)", [[model._meta.db_table for model in REFERENCE_DATA]])


def _prices() -> dict[str, list[list[str]]]:
    found: dict[str, list[list[str]]] = {}
    names = dict(PriceVersion.objects.values_list("pk", "name"))
    for model in (GpuPrice, TokenPrice):
        for values in model._default_manager.order_by("pk").values():
            row: dict[str, Any] = dict(values)
            version = names[row.pop("version_id")]
            # without ids, so that a list that is stored again has the same fingerprint
            row.pop("id")
            found.setdefault(version, []).append([str(value) for value in row.values()])
    return found


def names_of(window: Interval, close_seq: int) -> Names:
    """Return the names of all usage that a close billed, late usage of earlier windows included."""
    namespaces, consumers = set[Name](), set[Name]()
    for part in _windows(window, close_seq):
        held, reported = names_before(part, close_seq)
        namespaces.update(held)
        consumers.update(reported)
    return sorted(namespaces), sorted(consumers)


def _windows(window: Interval, close_seq: int) -> list[Interval]:
    return [window, *(Interval(late.start, late.end) for late in late_windows(close_seq))]


def input_fingerprint(
    facts: Facts, *, window: Interval, zone: str, close_seq: int | None, names: Names | None = None
) -> str:
    """Return the SHA-256 over the inputs from which `rate_period` rates a window, as close `close_seq` saw them (None: now).

    names: names of a close's usage, by `names_of`; only their owners count. They need not be read again: other names would
    be other usage, which the fingerprint covers.
    """
    as_of = close_seq or last_close_seq() + 1
    windows = _windows(window, as_of)
    reach = Interval(min(part.start for part in windows), max(part.end for part in windows))
    changes = [one for one in facts.changes if one.epoch is not None and one.epoch < as_of]
    known = reference_data_with(changes, facts.owners, facts.card)
    made_of = {
        "form": FORM, "zone": zone, "close_seq": as_of, "before": close_before(as_of),
        "windows": [[one.start, one.end] for one in windows],
        "standing": [[one.close_seq, one.start, one.end] for one in facts.standing if one.close_seq <= as_of],
        "usage": [_usage(known, one, as_of, stored=close_seq is not None) for one in windows],
        "owners": [_of_names(book, used, reach) for book, used in zip(facts.owners, names or (None, None), strict=True)],
        "cuts": sorted(at for book in facts.owners for at in book.changes() if reach.start < at < reach.end),
        "facts": {name: _dated(rows, reach, facts.prices) for name, rows in facts.dated.items()},
        "whole": facts.whole,
        "changes": [_change(one) for one in changes],
        "offered": [[*pool, capacity] for pool, capacity in sorted(capacity_of(window, close_seq).items())],
        "made by": PROGRAM if close_seq is None else _charges(close_seq),
    }  # fmt: skip
    if close_seq is None:
        made_of["gather"] = gather_limit()
        made_of["shown"] = sorted(facts.modes.teams(facts.modes.by_team, month_of(window.start, zone), shadow=True))
    return sha256(json.dumps(made_of, sort_keys=True, default=str).encode()).hexdigest()


def fingerprint_now(*, window: Interval, zone: str) -> str:
    """Return the fingerprint of an open month's inputs as they are known now."""
    return input_fingerprint(facts_now(), window=window, zone=zone, close_seq=None)


def _program_sha256() -> str:
    digest = sha256()
    for package in ("metering", "pricing", "billing.tenancy", "billing.usage", "billing.rates", "billing.rating"):
        folder = Path(str(sys.modules[package].__file__)).parent
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


PROGRAM: Final = _program_sha256()
"""SHA-256 of the rating code that this process loaded: code installed later does not rate here."""


def _usage(known: ReferenceData, window: Interval, close_seq: int, *, stored: bool) -> dict[str, list[str]]:
    # roll-ups are by hour: hours that a piece cuts are read from the events
    starts = [piece.start for piece in known.token_pieces(window)]
    return usage_fingerprint(
        window, before=close_seq, last_sample=known.last_sample(window), cuts=starts[1:], stored=stored,
        events=any(known.card.context_bounds(at) for at in starts),
    )  # fmt: skip


def _of_names(book: OwnershipBook, names: Sequence[Name] | None, reach: Interval) -> list[Any]:
    """Return the owners of some names, or (None) of all names."""
    if names is not None:
        return [[*name, _owners(book.rows_of(*name), reach)] for name in names]
    return [[row.scope, row.name, *_owners([row], reach)] for row in book.rows]


def _owners(rows: Iterable[OwnershipRow], reach: Interval) -> list[Any]:
    """Return the possible owners of names, cut at the bounds; the first row that covers an instant wins."""
    return [
        [row.owner.team, row.owner.platform, _bound(row.valid_from, reach), _bound(row.valid_until, reach)]
        for row in rows
        if _reaches(row.valid_from, row.valid_until, reach)
    ]


def _bound(at: datetime | None, reach: Interval) -> datetime | None:
    """Return an instant if it cuts the windows, else None."""
    return at if at is not None and reach.start < at < reach.end else None


def _reaches(start: datetime | None, end: datetime | None, reach: Interval) -> bool:
    return (start is None or start < reach.end) and (end is None or end > reach.start)


def _dated(rows: Iterable[Row], reach: Interval, prices: Mapping[str, list[list[str]]]) -> list[Row]:
    found = []
    for row in rows:
        if _reaches(row["valid_from"], row["valid_until"], reach):
            facts = {name: value for name, value in row.items() if name != "id"}
            facts |= {name: _bound(row[name], reach) for name in ("valid_from", "valid_until")}
            found.append(facts | {"prices": prices.get(row.get("name", ""), [])})
    return found


def _change(change: RetroactiveChange) -> list[Any]:
    names = ("kind", "name", "valid_from", "valid_until", "fact", "last_sample", "change_seq")
    return [getattr(change, name) for name in names]


def _charges(close_seq: int) -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute(CHARGES, [close_seq])
        return [str(value) for value in cursor.fetchone()]
