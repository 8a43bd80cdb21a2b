"""Exceptions for usage whose share of a device nobody knows: it is in no charge, and blocks the close until it is known."""

from decimal import Decimal
from fractions import Fraction

from billing.closing.exceptions import ReportedException
from billing.rates.selectors import rate_card
from billing.usage.unknown_shares import UnknownUse, unknown_shares
from metering.intervals import Interval
from metering.messages import Message
from pricing.money import EXACT, round_amount
from pricing.rate_card import RateCard

HOUR_US = 3_600_000_000


def shares_unknown(window: Interval) -> list[ReportedException]:
    """One for each namespace, resource and accelerator; `amount`: what it costs at most, as if each unit were a device."""
    found = unknown_shares(window)
    card = rate_card() if found else RateCard(())
    return [
        ReportedException(
            "unknown_share", use.subject, EXACT.scaleb(use.unit_us, -6), "unit_seconds", True,
            Message("%(text)s: declare it with `manage.py gpu_share`, or waive it", text="; ".join(use.reasons)),
            amount=_at_most(use, card, window),
        )
        for use in found
    ]  # fmt: skip


def _at_most(use: UnknownUse, card: RateCard, window: Interval) -> Decimal | None:
    """The units as whole devices at the highest price of the window; None where some of it has no price."""
    instants = [window.start, *(at for at in card.changes() if window.start < at < window.end)]
    prices = [card.list_price(use.accelerator, at) for at in instants]
    highest = max((price for price in prices if price is not None), default=None)
    if highest is None or None in prices:
        return None
    return round_amount(Fraction(use.unit_us) * Fraction(highest) / HOUR_US)
