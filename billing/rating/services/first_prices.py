"""What the first price list asks of usage, which `billing.rates` does not know: whether a month was ever closed."""

from billing.rates.services.drafts import PRICE_LIST
from billing.usage.epochs import ingest_lock_shared


def nothing_closed() -> bool:
    """Whether no month was ever closed, one that was taken back included; none is before this transaction ends."""
    return ingest_lock_shared() == 0


PRICE_LIST.nothing_closed = nothing_closed
