"""Closing, issuing and what is on an invoice, each in a word."""

import json
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest
from django.db import connection, transaction

from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.corrections.services.proof import period_verify
from billing.invoices.models import BillingPeriod, Invoice
from billing.invoices.services.invoices import invoices_issue
from billing.invoices.services.periods import period_open
from billing.usage.epochs import epoch_advance, ingest_lock_exclusive, next_close_seq
from tests.factories import SET_UP
from tests.factories.months import OCTOBER_OVER


def close(month: str = "2026-10", now: datetime = OCTOBER_OVER) -> Any:
    return period_close(month=month, actor="ops", now=now)


class Died(Exception):
    """Whoever closes is gone."""


def window_close(start: datetime, end: datetime) -> int:
    """Close [start, end) without a bill, as a month of its own, its rating by the first rules; returns its number."""
    with transaction.atomic():
        ingest_lock_exclusive()
        number = next_close_seq()
        period = BillingPeriod.objects.create(month=f"{start:%Y-%m}", zone="UTC", start=start, end=end)
        period.status, period.close_seq = BillingPeriod.Status.CLOSING, number
        period.save()
        epoch_advance(close_seq=number, start=start, end=end, rating_rules=1)
    return number


def close_cut_off(month: str = "2026-10", now: datetime = OCTOBER_OVER) -> None:
    """A close that dies once the month is cut off, before the first line is written."""

    def die_before_the_bill(stage: str, done: int, total: int) -> None:
        if stage == "write":
            raise Died

    with pytest.raises(Died):
        period_close(month=month, actor="ops", now=now, report_progress=die_before_the_bill)


def issue(month: str = "2026-10", now: datetime = OCTOBER_OVER) -> int:
    return invoices_issue(month=month, actor="ops", now=now)


def lines(team: str, month: str = "2026-10") -> list[dict[str, Any]]:
    invoice = Invoice.objects.get(team__code=team, period__month=month)
    document: dict[str, Any] = json.loads(invoice.document) if invoice.document else invoice.draft
    return document["lines"]


def shown(team: str, month: str = "2026-10") -> list[tuple[str, ...]]:
    """sku or token class, price version, quantity, price and amount of every line."""
    return [
        (line["token_class"] or line["sku"], line["price_version"], line["quantity"], line["unit_price"], line["amount"])
        for line in lines(team, month)
    ]


def total(team: str, month: str = "2026-10") -> Decimal:
    return Invoice.objects.get(team__code=team, period__month=month).total


def blocking(month: str = "2026-10", now: datetime = OCTOBER_OVER) -> list[tuple[str, str, Decimal, str]]:
    report = build_report(period_open(month=month), now=now)
    return [(item.kind, item.subject, item.quantity, item.unit) for item in report.blocking]


def proofs_hold(month: str) -> bool:
    proofs = period_verify(month=month)
    return bool(proofs) and all(proof.holds for proof in proofs)


def sql(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def prices(*versions: dict[str, Any]) -> dict[str, Any]:
    return {"price_versions": [*SET_UP["price_versions"], *versions]}


def version(name: str, valid_from: str, price: str, output: str = "8.0000") -> dict[str, Any]:
    first = SET_UP["price_versions"][0]
    gpu = [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": price}, first["gpu"][1]]
    return {"name": name, "valid_from": valid_from, "gpu": gpu, "tokens": [{**first["tokens"][0], "output": output}]}
