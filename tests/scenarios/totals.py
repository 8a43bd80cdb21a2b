"""Totals of a month by document: as documents state them, as the journal posts them, as FOCUS bills them."""

import csv
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
from django.core.management import call_command

from billing.invoices.models import Invoice, Note


def documented(month: str) -> dict[str, Decimal]:
    """Total of every document of a month, by number."""
    documents = [json.loads(text) for text in Invoice.objects.values_list("document", flat=True)]
    documents += [json.loads(text) for text in Note.objects.values_list("document", flat=True)]
    return {item["number"]: Decimal(item["total"]) for item in documents if item["period"]["month"] == month}


def posted(month: str, directory: Path) -> dict[str, Decimal]:
    """What the journal debits its consumers with, by document."""
    path = directory / f"journal-{month}.csv"
    call_command("export_journal", month, "--out", str(path))
    sums: dict[str, Decimal] = defaultdict(Decimal)
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["account"] == "internal AI compute":
                sums[row["invoice_number"]] += Decimal(row["debit"] or 0) - Decimal(row["credit"] or 0)
    return dict(sums)


def exported(month: str, directory: Path) -> dict[str, Decimal]:
    """Sum of BilledCost in FOCUS, by document."""
    call_command("export_focus", month, "--out", str(directory))
    sums: dict[str, Decimal] = defaultdict(Decimal)
    for row in pq.read_table(directory / f"focus-cost-and-usage-{month}.parquet").to_pylist():
        sums[row["InvoiceId"]] += row["BilledCost"]
    return dict(sums)
