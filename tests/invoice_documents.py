"""Invoices as documents show them."""

from datetime import UTC, datetime
from decimal import Decimal

SHA256 = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"
PREVIOUS = "148de9c5a7a44d19e56cd9ae1a554bf67847afb0c58f6e12fa29ac7ddfca9940"
ISSUED = {"sha256": SHA256, "issued_at": datetime(2026, 11, 3, 1, 12, tzinfo=UTC)}


def gpu(amount: str = "209.62", **facts: object) -> dict[str, object]:
    return {
        "kind": "gpu", "cluster": "hq-1", "namespace": "nlp-train", "sku": "NVIDIA-H800", "quantity": "20.962222",
        "unit": "GPU-Hours", "unit_price": "10.0000", "price_version": "2026-10", "charge_period": "2026-10",
        "amount": amount, **facts,
    }  # fmt: skip


def tokens(amount: str = "2.47", **facts: object) -> dict[str, object]:
    return {
        "kind": "tokens", "consumer": "nlp-key-1", "sku": "llama-3-8b", "token_class": "cache_read",
        "quantity": "1.234567", "unit": "1M Tokens", "unit_price": "2.0000", "price_version": "2026-10",
        "amount": amount, **facts,
    }  # fmt: skip


def reward(amount: str = "-20.96", **facts: object) -> dict[str, object]:
    return {
        "kind": "efficiency", "cluster": "hq-1", "namespace": "nlp-train", "sku": "NVIDIA-H800", "jobs": 3,
        "quantity": "20.962222", "unit": "GPU-Hours", "unit_price": "-1.0000", "price_version": "2026-10",
        "policy": "bands-v1", "reason": "reward", "amount": amount, **facts,
    }  # fmt: skip


def invoice(*lines: dict[str, object], **facts: object) -> dict[str, object]:
    sums: dict[str, Decimal] = {}
    for line in lines:
        kind = str(line["kind"])
        sums[kind] = sums.get(kind, Decimal("0.00")) + Decimal(str(line["amount"]))
    return {
        "schema": "suanpan/invoice/1",
        "number": "AI-INFRA-2026-000001",
        "previous_sha256": PREVIOUS,
        "issuer": {"name": "AI-INFRA"},
        "recipient": {"team": "nlp", "name": "NLP Research", "cost_center": "CC-210"},
        "period": {
            "month": "2026-10", "zone": "Asia/Shanghai",
            "start": "2026-10-01T00:00:00+08:00", "end": "2026-11-01T00:00:00+08:00",
            "start_utc": "2026-09-30T16:00:00Z", "end_utc": "2026-10-31T16:00:00Z",
        },
        "currency": "CNY",
        "lines": [{"position": position, **line} for position, line in enumerate(lines, start=1)],
        "subtotals": [{"kind": kind, "amount": str(amount)} for kind, amount in sums.items()],
        "total": str(sum(sums.values(), Decimal("0.00"))),
        "energy_kwh": "31.2",
        **facts,
    }  # fmt: skip


ORDINARY = invoice(gpu(), tokens(), reward())
