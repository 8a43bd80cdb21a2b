"""Warnings about a price list before its publication."""

from datetime import datetime
from zoneinfo import ZoneInfo

from django.db.models import Q

from billing.rates.models import PriceDraft
from billing.rates.price_diff import price_changes
from billing.rates.price_list import PriceListError
from billing.rates.selectors import plain_version, prices_taken_back, version_in_force
from billing.tenancy.selectors import billing_setup
from billing.usage.models import GpuAllocation
from billing.usage.store.hours import models_used
from metering.intervals import Interval
from metering.messages import Message
from pricing.rate_card import PriceVersion


def draft_warnings(draft: PriceDraft, now: datetime) -> dict[str, Message]:
    """Return the warnings on a draft that may still be published: `set_back`, `taken_back`, those that apply."""
    if draft.state not in (PriceDraft.State.DRAFT, PriceDraft.State.SUBMITTED, PriceDraft.State.REJECTED):
        return {}
    try:
        found = {"set_back": set_back_warning(plain_version(draft), now), "taken_back": taken_back_warning(draft)}
    except PriceListError:  # a sheet is missing: its page and its submission report that
        return {}
    return {name: warning for name, warning in found.items() if warning is not None}


def taken_back_warning(draft: PriceDraft) -> Message | None:
    """Return a warning if a draft reverts prices published since it was begun, else None.  Raises PriceListError."""
    found = prices_taken_back(draft)
    if found is None:
        return None
    return Message(
        "%(name)s was published since %(draft)s was begun, from %(base)s: it takes back the prices of %(names)s",
        name=found.current.name, draft=draft.name, base=found.base.name if found.base else "-", names=found.names,
    )


def set_back_warning(listed: PriceVersion, now: datetime) -> Message | None:
    """Return a warning that names metered usage repriced by a list that begins in the past; None if there is none.

    A SKU without a price in the list in force at that time gets its first price, which reprices nothing.
    """
    before = version_in_force(listed.valid_from)
    if before is None or listed.valid_from >= now:
        return None
    # later lists stay in force: only the list before this one loses time
    window = Interval(listed.valid_from, min(before.valid_until or now, now))
    changes = [one for one in price_changes(plain_version(before), listed) if one.change != "same"]
    resources = {item.resource for item in listed.gpu}
    # a new price of a resource does reprice: until then its accelerator's price applied
    devices = [one for one in changes if not one.key.token_class]
    gpus = {one.key.sku for one in devices if one.old is not None or one.key.sku in resources}
    models = {one.key.sku for one in changes if one.key.token_class and one.old is not None}
    held = GpuAllocation.objects.filter(observed_until__gt=window.start, started_at__lt=window.end)
    held = held.filter(Q(accelerator__in=gpus) | Q(resource__in=gpus))
    found = {name for pair in held.values_list("accelerator", "resource").distinct() for name in pair} & gpus
    used = [*sorted(found), *sorted(models_used(window).keys() & models)]
    if not used:
        return None
    start = listed.valid_from.astimezone(ZoneInfo(billing_setup().zone))
    return Message(
        "price list %(name)s begins at %(start)s, %(days)s days ago: what was used since of %(used)s is priced anew",
        name=listed.name,
        start=start.isoformat(),
        days=(now - listed.valid_from).days,
        used=", ".join(used),
    )
