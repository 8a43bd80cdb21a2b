"""Group F: roundings, splits and corrections of amounts."""

from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from pricing.adjustments import commitment_costs, platform_fault_credit
from pricing.money import Money, round_amount, split_amount
from tests.golden.registry import case


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
    debit = Money(Decimal(i["invoice"]), "CNY")
    return {"debit_CC-210": debit.amount, "credit_CC-900": debit.amount, "net": (debit - debit).amount}


@case("F07")
def _(i: dict[str, Any]) -> dict[str, object]:
    billed, right = (Money(Decimal(i[name]), "CNY").times(int(i["gpu_hours"])) for name in ("old", "new"))
    return {"reversal_amount": (-billed).amount, "rebill_amount": right.amount, "net_total": (right - billed).amount}


@case("F13")
def _(i: dict[str, Any]) -> dict[str, object]:
    costs = commitment_costs(int(i["committed"]), Decimal(i["rate"]), int(i["used"]))
    return {
        "purchase_billed_amount": costs.purchase_billed, "purchase_effective_amount": costs.purchase_effective,
        "used_effective_amount": costs.used_effective, "unused_effective_amount": costs.unused_effective,
        "usage_billed_amount": costs.usage_billed,
    }  # fmt: skip


@case("F15")
def _(i: dict[str, Any]) -> dict[str, object]:
    original, replacement = Money(Decimal(i["original"]), "CNY"), Money(Decimal(i["replacement"]), "CNY")
    return {
        "credit_note_amount": (-original).amount, "replacement_amount": replacement.amount,
        "account_net_total": (original + -original + replacement).amount,
    }  # fmt: skip


@case("F18")
def _(i: dict[str, Any]) -> dict[str, object]:
    lost, cap, price = (Decimal(i[name]) for name in ("lost_hours", "cap_hours", "price"))
    return {"credit_amount": platform_fault_credit(int(i["gpus"]), lost, cap, price)}
