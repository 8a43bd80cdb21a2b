"""Published price versions. A published version is never edited; another one follows it.

The caller checks in the same transaction that no closed period changes with it
(`billing.corrections.services.proof.closed_periods_check`): this package does not know which periods are closed.
"""

from dataclasses import dataclass
from datetime import datetime

from django.db import connection

from billing.rates.models import CostSheet, GpuPrice, PriceDraft, PriceVersion, TokenCostSheet, TokenPrice
from billing.rates.price_list import PriceList, slice_problems
from billing.rates.services.sheets import RateError
from billing.rates.services.succession import alone_in_time, take_over
from billing.tenancy.audit import audit_record
from metering.messages import Message

PUBLISH_LOCK = 0x50524943


@dataclass(frozen=True)
class PriceVersionInput:
    """Complete price list to publish. `draft`: the approved draft; None for a declared list."""

    name: str
    currency: str
    valid_from: datetime
    prices: PriceList
    draft: PriceDraft | None = None


def price_version_publish(*, wanted: PriceVersionInput, actor: str, origin: str = "set-up file") -> bool:
    """Publish a price list from its instant on; the previous list ends there.

    A declared list is approved by the person who applies it, and the audit log records that; a draft has its own approval.
    Returns False if this version is published already.  Raises RateError if the published version of that name differs.
    """
    known = PriceVersion.objects.filter(name=wanted.name).prefetch_related("gpu__cost_sheet", "tokens").first()
    if known:
        difference = _difference(known, wanted)
        if difference:
            raise RateError(Message(
                "price version %(name)s is published and differs in %(difference)s: give it a new name",
                name=wanted.name, difference=difference,
            ))
        return False
    if problems := slice_problems(wanted.prices):
        raise RateError(Message("price version %(name)s: %(problem)s", name=wanted.name, problem=problems[0].message))
    with alone_in_time(Message("price version %(name)s overlaps another one", name=wanted.name)):
        _publish(wanted, actor, origin)
    return True


def publish_lock() -> None:
    """Lock publication to one transaction at a time: each list sets the end of its neighbours."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [PUBLISH_LOCK])


def _publish(wanted: PriceVersionInput, actor: str, origin: str) -> None:
    publish_lock()
    prices = wanted.prices
    if wanted.draft is not None:  # it may replace a list of the same start by which nothing was billed
        same = PriceVersion.objects.filter(valid_from=wanted.valid_from).exclude(valid_until=wanted.valid_from)
        same.update(valid_until=wanted.valid_from)
    until = take_over(PriceVersion.objects.all(), wanted.valid_from)
    version = PriceVersion.objects.create(
        name=wanted.name, currency=wanted.currency, valid_from=wanted.valid_from, valid_until=until, published_by=actor,
        draft=wanted.draft,
    )  # fmt: skip
    sheets = {sheet.name: sheet for sheet in CostSheet.objects.all()}
    GpuPrice.objects.bulk_create(
        GpuPrice(
            version=version, accelerator=item.accelerator, resource=item.resource, unit=item.unit, price=item.price,
            cost_sheet=sheets[item.cost_sheet] if item.cost_sheet else None, facility_kw=item.facility_kw,
        )
        for item in prices.gpu
    )  # fmt: skip
    token_sheets = {sheet.name: sheet for sheet in TokenCostSheet.objects.all()}
    TokenPrice.objects.bulk_create(
        TokenPrice(
            version=version, model=model, token_class=token_class, price=price,
            cost_sheet=token_sheets[prices.token_sheets[model]] if model in prices.token_sheets else None,
        )
        for (model, token_class), price in prices.tokens.items()
    )  # fmt: skip
    # last: nothing of a sealed version can be written
    version.sealed = True
    version.save(update_fields=["sealed"])
    audit_record(
        actor=actor, action="price_version_publish", subject=wanted.name,
        detail={
            "valid_from": wanted.valid_from.isoformat(), "gpu": len(prices.gpu), "tokens": len(prices.tokens),
            "origin": origin, "approved_by": actor,
        },
    )  # fmt: skip


def _difference(known: PriceVersion, wanted: PriceVersionInput) -> str:
    """Return the first difference between a published version and the wanted one, in words; "" without any."""
    if known.valid_from != wanted.valid_from:
        return f"valid_from ({known.valid_from.isoformat()}, not {wanted.valid_from.isoformat()})"
    if known.currency != wanted.currency:
        return f"currency ({known.currency}, not {wanted.currency})"
    published = {(row.accelerator, row.resource): (row.price, row.unit) for row in known.gpu.all()}
    asked = {(item.accelerator, item.resource): (item.price, str(item.unit)) for item in wanted.prices.gpu}
    for sku in sorted(published.keys() | asked.keys()):
        if published.get(sku) != asked.get(sku):
            return f"the price of {sku[1] or sku[0]}"
    listed = {(row.model, row.token_class): row.price for row in known.tokens.all()}
    for key in sorted(listed.keys() | wanted.prices.tokens.keys()):
        if listed.get(key) != wanted.prices.tokens.get(key):
            return f"the {key[1]} price of {key[0]}"
    return ""
