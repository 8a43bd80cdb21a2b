"""Group F: roundings, splits and corrections of amounts."""

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from metering.intervals import billing_month
from pricing.commitments import Commitment, CommitmentBook, cover, rate_commitments
from pricing.interruptions import InterruptionRule
from pricing.meters import MICROSECONDS_PER_HOUR
from pricing.money import round_amount, split_amount
from pricing.rate_card import GpuPrice, PriceVersion, RateCard
from pricing.rating import GpuUsage, InterruptedUsage, Rated, rate_gpu, rate_interruptions
from tests.golden.registry import case

OCTOBER = billing_month("2026-10", "UTC")


def _card(price: Decimal) -> RateCard:
    return RateCard([PriceVersion("v1", OCTOBER.start, None, (GpuPrice(price, "H800"),))])


def _used(device_us: Decimal) -> GpuUsage:
    return GpuUsage("t", False, "c", "n", "H800", "", OCTOBER.start, device_us, device_us, "2026-10")


def _amount(rated: Rated) -> Decimal:
    (charge,) = rated.charges
    return charge.amount


@case("F01")
def _(i: dict[str, Any]) -> dict[str, object]:
    even = {f"half_even {v}": Decimal(v).quantize(Decimal("0.01"), ROUND_HALF_EVEN) for v in ("2.665", "2.675")}
    return {f"half_up {value}": round_amount(Decimal(value)) for value in i["values"]} | even


@case("F02")
def _(i: dict[str, Any]) -> dict[str, object]:
    lines = [round_amount(Decimal(value)) for value in i["lines"]]
    return {
        "line_amount": lines[0], "invoice_total": sum(lines),
        "not_the_rounded_sum_amount": round_amount(sum(Decimal(value) for value in i["lines"])),
    }  # fmt: skip


@case("F03")
@case("F04")
@case("F05")
@case("F16")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"shares": split_amount(Decimal(i["total"]), [int(weight) for weight in i["weights"]])}


@case("F06")
def _(i: dict[str, Any]) -> dict[str, object]:
    return {"shares": split_amount(Decimal(i["idle"]), [int(weight) for weight in i["gpu_hours"]])}


@case("F14")
def _(i: dict[str, Any]) -> dict[str, object]:
    debit = round_amount(Decimal(i["invoice"]))
    return {"debit_CC-210": debit, "credit_CC-900": debit, "net": debit - debit}


@case("F07")
def _(i: dict[str, Any]) -> dict[str, object]:
    used = _used(Decimal(i["gpu_hours"]) * MICROSECONDS_PER_HOUR)
    back = _amount(rate_interruptions([InterruptedUsage(used, "p", "r")], _card(Decimal(i["old"]))))
    right = _amount(rate_gpu([used], _card(Decimal(i["new"]))))
    return {"reversal_amount": back, "rebill_amount": right, "net_total": right + back}


@case("F13")
def _(i: dict[str, Any]) -> dict[str, object]:
    """What is bought is billed by used and unused hours; the purchase has no effective cost, its use no billed one."""
    start, card = OCTOBER.start, _card(Decimal(10))
    book = CommitmentBook([Commitment("c", "t", "H800", Decimal(i["committed"]), Decimal(i["rate"]), start)])
    used = _used(Decimal(i["used"]) * MICROSECONDS_PER_HOUR)
    found = cover([used], (), book, card, window=OCTOBER, month="2026-10")
    costs = {charge.key.reason: charge.amount for charge in rate_commitments(found, card).charges}
    return {
        "purchase_billed_amount": sum(costs.values()), "purchase_effective_amount": Decimal("0.00"),
        "used_effective_amount": costs["used"], "unused_effective_amount": costs["unused"],
        "usage_billed_amount": sum((charge.amount for charge in rate_gpu(found.rest, card).charges), Decimal("0.00")),
    }  # fmt: skip


@case("F15")
def _(i: dict[str, Any]) -> dict[str, object]:
    original, replacement = round_amount(Decimal(i["original"])), round_amount(Decimal(i["replacement"]))
    return {
        "credit_note_amount": -original, "replacement_amount": replacement,
        "account_net_total": original - original + replacement,
    }  # fmt: skip


@case("F18")
def _(i: dict[str, Any]) -> dict[str, object]:
    lost = int(Decimal(i["lost_hours"]) * MICROSECONDS_PER_HOUR)
    cap = InterruptionRule("p", "node lost", OCTOBER.start, None, Decimal(i["cap_hours"])).cap_us
    assert cap is not None
    carried = InterruptedUsage(_used(Decimal(min(lost, cap) * int(i["gpus"]))), "p", "node lost")
    return {"credit_amount": _amount(rate_interruptions([carried], _card(Decimal(i["price"]))))}
