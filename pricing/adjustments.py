"""PURE: what stands beside the plain price: currency, true-up, commitments, tiers, minimum duration, service credits."""

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from metering.messages import Message, UserError
from pricing.money import Number, fraction_of, round_amount, round_price


class AdjustmentError(UserError, ValueError):
    """Values that no adjustment can be made from."""

    code = "price_adjustment"


def converted_list_price(price: Number, rate: Number) -> Decimal:
    """List price in the billing currency: converted once, rounded once; exchange differences are the provider's.

    >>> converted_list_price(Decimal("1.65"), Decimal("7.1234"))
    Decimal('11.7536')

    Source: FE10, currency.
    """
    if fraction_of(rate) <= 0:
        raise AdjustmentError(Message("exchange rate %(rate)s must be above 0", rate=rate))
    return round_price(fraction_of(price) * fraction_of(rate))


def true_up(actual_cost: Number, recovered: Number, planned_gpu_hours: Number) -> Fraction:
    """Change of next year's price per GPU-hour = (actual cost - recovered) / planned GPU-hours; a surplus lowers it.

    >>> true_up(10_000_000, 9_400_000, 1_200_000)
    Fraction(1, 2)

    Source: FE11, annual true-up as in university recharge rules.
    """
    if fraction_of(planned_gpu_hours) <= 0:
        raise AdjustmentError(Message(
            "planned GPU-hours %(planned_gpu_hours)s must be above 0", planned_gpu_hours=planned_gpu_hours
        ))
    return (fraction_of(actual_cost) - fraction_of(recovered)) / fraction_of(planned_gpu_hours)


@dataclass(frozen=True, slots=True)
class CommitmentCosts:
    """FOCUS cost metrics of a take-or-pay commitment: the purchase is billed, its use and non-use are effective cost."""

    purchase_billed: Decimal
    purchase_effective: Decimal
    used_effective: Decimal
    unused_effective: Decimal
    usage_billed: Decimal


def commitment_costs(committed_hours: Number, price_per_hour: Number, used_hours: Number) -> CommitmentCosts:
    """Reserved capacity: the price is on committed hours, and unused ones are billed like used ones.

    Use beyond the commitment is on-demand and no part of it. Used and unused effective cost add up to the purchase.

    >>> commitment_costs(1000, 8, 850).unused_effective
    Decimal('1200.00')

    Source: FE13, tiers; FOCUS, commitment discounts.
    """
    committed, used = fraction_of(committed_hours), fraction_of(used_hours)
    if committed < 0 or used < 0:
        raise AdjustmentError(Message(
            "committed hours %(committed_hours)s and used hours %(used_hours)s must not be negative",
            committed_hours=committed_hours, used_hours=used_hours,
        ))
    bought = round_amount(committed * fraction_of(price_per_hour))
    consumed = round_amount(min(used, committed) * fraction_of(price_per_hour))
    nothing = Decimal("0.00")
    return CommitmentCosts(bought, nothing, consumed, bought - consumed, nothing)


def tier_prices(on_demand: Number, variable_cost: Number, *, reserved: Number, preemptible: Number) -> dict[str, Decimal]:
    """List prices of the tiers as ratios of on-demand; pre-emptible never falls below the variable cost.

    What pre-emptible use pays above that floor contributes to fixed cost, but is not part of the planned sold share.

    >>> tier_prices(10, Decimal("4.5"), reserved=Decimal("0.8"), preemptible=Decimal("0.4"))
    {'reserved': Decimal('8.0000'), 'on_demand': Decimal('10.0000'), 'preemptible': Decimal('4.5000')}

    Source: FE13.
    """
    base = fraction_of(on_demand)
    return {
        "reserved": round_price(base * fraction_of(reserved)),
        "on_demand": round_price(base),
        "preemptible": round_price(max(base * fraction_of(preemptible), fraction_of(variable_cost))),
    }


def list_prices(
    price: Number, variable_cost: Number, *, true_up: Number = 0, exchange_rate: Number = 1,
    reserved: Number | None = None, preemptible: Number | None = None,
) -> dict[str, Decimal]:  # fmt: skip
    """What a price list says of a card, by tier: last year's true-up added, converted once, rounded once.

    `price` and `variable_cost` per GPU-hour in the currency of the cost sheet, not rounded; `exchange_rate` billing currency
    per unit of it; tiers as ratios of the on-demand price, left out where they are None.

    >>> list_prices(Decimal("1.65"), 1, exchange_rate=Decimal("7.1234"))
    {'on_demand': Decimal('11.7536')}

    Source: FE10, FE11, FE13.  Raises AdjustmentError.
    """
    whole = fraction_of(price) + fraction_of(true_up)
    if whole < 0:
        raise AdjustmentError(Message("last year's surplus, spread over the planned GPU-hours, is more than the price"))
    on_demand = converted_list_price(whole, exchange_rate)
    floor = fraction_of(variable_cost) * fraction_of(exchange_rate)
    tiers = tier_prices(on_demand, floor, reserved=reserved or 0, preemptible=preemptible or 0)
    asked = {"on_demand": on_demand, "reserved": reserved, "preemptible": preemptible}
    return {name: tiers[name] for name, given in asked.items() if given is not None}


def billable_seconds(seconds: Number, minimum_seconds: Number = 0) -> Fraction:
    """Seconds that a job is charged for: at least the minimum where it ran at all. The house has no minimum.

    >>> billable_seconds(20, 60), billable_seconds(0, 60)
    (Fraction(60, 1), Fraction(0, 1))

    Source: FS1, optional minimum.
    """
    used = fraction_of(seconds)
    return max(used, fraction_of(minimum_seconds)) if used > 0 else Fraction(0)


def platform_fault_credit(gpus: int, lost_hours: Number, cap_hours: Number, price_per_gpu_hour: Number) -> Decimal:
    """Credit for work that a fault of the platform lost, up to the cap (one checkpoint interval). Negative.

    >>> platform_fault_credit(64, Decimal("3.5"), 1, 10)
    Decimal('-640.00')
    """
    hours = min(fraction_of(lost_hours), fraction_of(cap_hours))
    return round_amount(-gpus * hours * fraction_of(price_per_gpu_hour))
