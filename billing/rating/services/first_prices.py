"""Earliest start of price lists in past time: `billing.rates` does not know which months are closed."""

from datetime import datetime

from billing.rates.services.drafts import PRICE_LIST
from billing.rating.selectors import closed_until
from billing.usage.epochs import ingest_lock_shared


def open_since() -> datetime | None:
    """Return the end of the last closed month, None before any; block closes until this transaction ends."""
    ingest_lock_shared()
    return closed_until()


PRICE_LIST.open_since = open_since
