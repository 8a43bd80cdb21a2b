"""What last month would have cost with the sheet on the workbench: its price in the place of the published one."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final

from billing.closing.price_preview import month_effect
from billing.invoices.selectors import period_of
from billing.portal.price_lists import published_versions
from billing.portal.slices import Card, with_slices
from billing.portal.workbench import published_price, slices_of
from billing.rates.price_file import version_content
from billing.rates.price_list import PriceListError, SheetPrice, parse_price_list
from billing.rates.selectors import hypothetical_version, stored_sources
from billing.rating.price_effect import Effect, PriceEffect
from metering.messages import Message
from pricing.cost_sheet import CostSheet
from pricing.fields import FieldProblem
from pricing.tco import cost_of_gpu_hour

ON_THE_BENCH: Final = "the sheet on the workbench ".ljust(201, ".")
"""Longer than any stored name."""


@dataclass(frozen=True)
class ShownEffect:
    """An effect as the page tells it: teams with their lines; `problems` where the list cannot be priced."""

    effect: PriceEffect | None = None
    teams: list[tuple[Effect, list[Effect]]] = field(default_factory=list)
    problems: Sequence[str] = ()


def sheet_effect(sheet: CostSheet, *, month: str, currency: str, memory_gb: int) -> ShownEffect:
    """The newest published list with the accelerator at the price of `sheet` and its slices after it, on usage of `month`.

    Every other price stays. Raises IntervalError for a month that is none.
    """
    version = published_versions().first()
    content = version_content(version) if version else {"gpu": [], "tokens": []}
    others = [row for row in content["gpu"] if row.get("accelerator") != sheet.accelerator or row.get("resource")]
    cost = cost_of_gpu_hour(sheet)
    if cost.list_currency != currency:
        named = "list_currency" if cost.listing.currency else "currency"
        return ShownEffect(problems=[FieldProblem((named,), Message(
            "%(value)s must be %(currency)s, in which prices are", value=repr(cost.list_currency), currency=currency
        )).message])
    card = Card(sheet.accelerator, cost.list_price, published_price(sheet.accelerator), memory_gb)
    others = with_slices(others, slices_of(card, version))
    content["gpu"] = [{"accelerator": sheet.accelerator, "cost_sheet": ON_THE_BENCH}, *others]
    own = SheetPrice(cost.list_price, cost.list_currency, cost.facility_kw.quantize(Decimal("1e-6")))
    stored = stored_sources()
    sources = replace(stored, gpu=lambda name: own if name == ON_THE_BENCH else stored.gpu(name))
    period = period_of(month)
    try:
        prices = parse_price_list(content, currency=currency, sources=sources)
    except PriceListError as error:
        return ShownEffect(problems=error.messages)
    effect = month_effect(period=period, prices=hypothetical_version("workbench", prices))
    return ShownEffect(effect, [(row, effect.of_team(row.key.team)) for row in effect.by_team])
