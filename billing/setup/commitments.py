"""The section `commitments` of the set-up file: hours that a team pays for, used or not.

    commitments:
      - {name: nlp-2026, team: nlp, accelerator: NVIDIA-H800, gpu_hours_per_month: "1000", price_per_gpu_hour: "8.0000",
         valid_from: 2026-10-01, valid_until: 2027-10-01}

`amount_per_month` may stand instead of the hours, where it is a whole number of them to 6 decimals; `cost_sheet` instead
of the price: the reserved tier of a stored sheet that has `reserved_ratio`.
"""

from decimal import Decimal
from fractions import Fraction

from billing.rates.selectors import reserved_price
from billing.rates.services import CommitmentTerms, commitment_put
from billing.setup.file import Entry
from billing.tenancy.models import Team
from billing.tenancy.selectors import billing_setup

HOURS_PLACES = 6


def commitment_store(entry: Entry, team: Team, zone: str, actor: str) -> tuple[bool, str]:
    """Store one entry; whether that changed anything, and in words what.  Raises SetUpFileError, RateError."""
    name, price = entry.text("name"), _price(entry)
    terms = CommitmentTerms(
        name, team, entry.name("accelerator"), _hours(entry, price), price,
        entry.instant("valid_from", zone), entry.optional_instant("valid_until", zone),
    )  # fmt: skip
    entry.finish()
    changed = commitment_put(terms=terms, actor=actor)
    told = f"{format(terms.gpu_hours.normalize(), 'f')} GPU-hours of {terms.accelerator} a month at {price}"
    return changed, f"commitment {name} of {team.code}: {told} from {terms.valid_from.isoformat()}"


def _price(entry: Entry) -> Decimal:
    if not entry.has("cost_sheet"):
        return entry.decimal("price_per_gpu_hour", places=4, at_least="0.0001")
    if entry.has("price_per_gpu_hour"):
        raise entry.error("price_per_gpu_hour", "stands beside cost_sheet: give one of them")
    sheet, currency = entry.text("cost_sheet"), billing_setup().currency
    price = reserved_price(sheet, currency)
    if not price:
        wanted = f"must be a stored cost sheet with reserved_ratio and prices in {currency}"
        raise entry.error("cost_sheet", f"{sheet!r} {wanted}")
    return price


def _hours(entry: Entry, price: Decimal) -> Decimal:
    if entry.has("gpu_hours_per_month") == entry.has("amount_per_month"):
        raise entry.error("gpu_hours_per_month", "say either the hours or the amount (amount_per_month) of a month")
    if entry.has("gpu_hours_per_month"):
        return entry.decimal("gpu_hours_per_month", places=HOURS_PLACES, at_least="0.000001")
    amount = entry.decimal("amount_per_month", places=2, at_least="0.01")
    millionths = Fraction(amount) / Fraction(price) * 10**HOURS_PLACES
    if millionths.denominator != 1:
        raise entry.error(
            "amount_per_month", f"{amount} at {price} is no whole number of GPU-hours to 6 decimals: say the hours"
        )
    return Decimal(millionths.numerator).scaleb(-HOURS_PLACES)
