"""PURE: comparison of two spans: their days, and the priced sums of both, to explain a change by its causes."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Final

import numpy as np

from billing.explorer.building import LATE, NOTE
from billing.explorer.cube import PLACES, priced_parts
from billing.explorer.query import DAY, Query, Span
from billing.explorer.results import exact
from billing.explorer.sums import METRIC, Metric, Selection
from billing.invoices.line_rollups import LineRollup
from pricing.money import EXACT

COUNTED: Final = Metric("quantity")
PRICED_BY: Final = ("team", "kind", "priced")


@dataclass(frozen=True, slots=True)
class ComparedLines:
    """Lines of some days (`after`) and of as many days before, summed by the names of a dimension."""

    after: Span
    before: Span
    now: Mapping[str, Sequence[LineRollup]]
    then: Mapping[str, Sequence[LineRollup]]


def compared_spans(span: Span, today: date) -> tuple[Span, Span] | None:
    """Return the elapsed days of a span, and as many days of the previous span; None where no day has elapsed.

    In a running span that is longer than the previous one, no more days are compared than that one has.

    >>> compared_spans(Span(date(2026, 11, 1), date(2026, 11, 30)), date(2026, 11, 3))[1].last
    datetime.date(2026, 10, 2)
    """
    whole = span.through(today - DAY)
    if whole is None:
        return None
    before = span.before()
    if whole == span:
        return whole, before
    before = before.first_days(whole.days)
    return whole.first_days(before.days), before


def priced_query(query: Query, by: str) -> Query:
    """Return the query with the same filters, summed by a dimension and by priced item."""
    return replace(query, by=tuple(dict.fromkeys((by, *PRICED_BY))), metric="cost", columns=(), search="")


def priced_lines(selection: Selection, by: str) -> dict[str, list[LineRollup]]:
    """Return the sums of a selection of `priced_query`, by the names of its dimension."""
    found: dict[str, list[LineRollup]] = defaultdict(list)
    amounts, quantities = selection.totals(METRIC["cost"]), selection.totals(COUNTED)
    places = selection.in_order(np.flatnonzero((amounts != 0) | (quantities != 0)))
    for place, group in zip(places, selection.names(places), strict=True):
        names = dict(zip(selection.query.by, group, strict=True))
        found[names[by]].append(_rollup(names, int(amounts[place]), int(quantities[place])))
    return found


def _rollup(names: Mapping[str, str], amount: int, quantity: int) -> LineRollup:
    late, kind = names["kind"] == LATE, {LATE: "gpu", NOTE: "credit"}.get(names["kind"], names["kind"])
    accelerator, sku, token_class, unit = priced_parts(names["priced"])
    return LineRollup(
        team=names["team"], kind=kind, correction=late, cluster="", namespace="", consumer="",
        accelerator=accelerator, sku=sku, token_class=token_class, unit=unit, amount=exact(amount, "cost"),
        quantity=EXACT.scaleb(Decimal(quantity), -PLACES["quantity"]),
    )  # fmt: skip
