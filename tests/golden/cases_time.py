"""Group A: time and GPU-hours."""

from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

from metering.intervals import Interval, billing_month
from pricing.money import round_amount
from pricing.rate_card import GpuPrice, PriceVersion, RateCard
from pricing.rating import GpuUsage, rate_gpu
from tests.golden.registry import VECTORS, case


def gpu_charges(prices: list[tuple[str, str]], spans: list[tuple[str, str]], gpus: int) -> Any:
    """Charges of one namespace whose spans are priced at (from, price); spans are cut at price changes."""
    starts = [datetime.fromisoformat(at) for at, _ in prices]
    versions = [
        PriceVersion(f"v{n}", starts[n], starts[n + 1] if n + 1 < len(prices) else None, (GpuPrice(Decimal(price), "X"),))
        for n, (_, price) in enumerate(prices)
    ]
    card = RateCard(versions)
    usages = []
    for lo, hi in spans:
        for piece in Interval(datetime.fromisoformat(lo), datetime.fromisoformat(hi)).cut(card.changes()):
            held = Decimal(gpus * piece.microseconds)
            usages.append(GpuUsage("t", False, "c", "n", "X", "r", piece.start, held, held, "2026-03"))
    return rate_gpu(usages, card).charges


def one_fee(price: str, gpus: int, seconds: int) -> tuple[Fraction, Decimal]:
    charges = gpu_charges([("2026-01-01T00:00+00:00", price)], [_span(seconds)], gpus) if seconds else []
    return (charges[0].quantity, charges[0].amount) if charges else (Fraction(0), Decimal("0.00"))


def _span(seconds: int) -> tuple[str, str]:
    start = datetime(2026, 3, 2, tzinfo=ZoneInfo("UTC"))
    return start.isoformat(), datetime.fromtimestamp(start.timestamp() + seconds, tz=ZoneInfo("UTC")).isoformat()


@case("A01")
def _(i: dict[str, Any]) -> dict[str, object]:
    hours, fee = one_fee(i["price_per_gpu_hour"], int(i["gpus"]), int(i["hours"]) * 3600)
    return {"gpu_hours": hours, "fee_amount": fee}


@case("A02")
def _(i: dict[str, Any]) -> dict[str, object]:
    hours, fee = one_fee(i["price_per_gpu_hour"], int(i["gpus"]), int(i["seconds"]))
    return {"gpu_hours": hours, "fee_amount": fee}


@case("A04")
def _(i: dict[str, Any]) -> dict[str, object]:
    charges = gpu_charges([("2026-01-01T00:00+00:00", "10")], [], 8)
    return {"gpu_hours": Fraction(0), "fee_amount": Decimal("0.00"), "lines": len(charges)}


@case("A05")
def _(i: dict[str, Any]) -> dict[str, object]:
    prices = [(p["from"], p["price"]) for p in i["prices"]]
    old, new = gpu_charges(prices, [(i["start"], i["end"])], int(i["gpus"]))
    return {
        "gpu_hours_old": old.quantity, "gpu_hours_new": new.quantity, "line_old_amount": old.amount,
        "line_new_amount": new.amount, "fee_total": old.amount + new.amount,
    }  # fmt: skip


@case("A06")
def _(i: dict[str, Any]) -> dict[str, object]:
    prices = [("2026-03-01T00:00+00:00", i["price_old"]), ("2026-03-02T14:00+00:00", i["price_new"])]
    charges = gpu_charges(prices, [("2026-03-02T13:30+00:00", "2026-03-02T15:15+00:00")], 1)
    return {"fee_amount": sum(charge.amount for charge in charges)}


@case("A07")
def _(i: dict[str, Any]) -> dict[str, object]:
    def hours(label: str) -> int:
        zone, month = label.split()
        return billing_month(month, zone).microseconds // 3_600_000_000

    return {label: hours(label) for label in VECTORS["A07"]["expected"]}


@case("A08")
def _(i: dict[str, Any]) -> dict[str, object]:
    pod = Interval(datetime.fromisoformat(i["start"]), datetime.fromisoformat(i["end"]))

    def hours(month: str) -> Fraction:
        part = pod.overlap(billing_month(month, i["billing_tz"]))
        return Fraction(int(i["gpus"]) * (part.microseconds if part else 0), 3_600_000_000)

    return {"gpu_hours_2026_02": hours("2026-02"), "gpu_hours_2026_03": hours("2026-03")}


@case("A09")
def _(i: dict[str, Any]) -> dict[str, object]:
    def local(text: str) -> datetime:
        at, zone = text.split()
        return datetime.fromisoformat(at).replace(tzinfo=ZoneInfo(zone))

    day = Interval(local(i["start"]), local(i["end"]))
    seconds = day.microseconds // 1_000_000
    return {"hours": Fraction(seconds, 3600), "fee_amount": one_fee(i["price_per_gpu_hour"], int(i["gpus"]), seconds)[1]}


@case("A10")
def _(i: dict[str, Any]) -> dict[str, object]:
    month = billing_month(i["month"], i["billing_tz"])
    return {
        "billing_period_start": month.start.isoformat().replace("+00:00", "Z"),
        "billing_period_end": month.end.isoformat().replace("+00:00", "Z"),
    }


@case("A03")
def _(i: dict[str, Any]) -> dict[str, object]:
    price = Fraction(i["price_per_gpu_hour"]) * int(i["gpus"]) / 3600
    billable = max(int(i["seconds"]), int(i["min_seconds"]))
    return {
        "billable_seconds": billable, "fee_amount": round_amount(billable * price),
        "fee_without_minimum_amount": round_amount(int(i["seconds"]) * price),
    }  # fmt: skip
