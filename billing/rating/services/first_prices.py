"""What lists that begin in the past ask of usage, which `billing.rates` does not know: which months are closed."""

from datetime import datetime

from billing.rates.services.drafts import PRICE_LIST
from billing.rating.selectors import closed_until
from billing.usage.epochs import ingest_lock_shared


def nothing_closed() -> bool:
    """Whether no month was ever closed, one that was taken back included; none is before this transaction ends."""
    return ingest_lock_shared() == 0


def open_since() -> datetime | None:
    """The end of the last closed month, None before any; none is closed before this transaction ends."""
    ingest_lock_shared()
    return closed_until()


PRICE_LIST.nothing_closed = nothing_closed
PRICE_LIST.open_since = open_since
