"""Search of documents: invoices, drafts and notes by number, team, month, amount or external reference."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet
from django.urls import reverse

from billing.invoices.models import DocumentEvent, Invoice, Note
from billing.tenancy.models import Team

SHOWN = 200
MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


@dataclass(frozen=True, slots=True)
class DocumentMatch:
    """Document found; `month` is that of an invoice, and the open one that a note was issued in."""

    kind: str
    number: str
    team: Team
    month: str
    status: str
    total: Decimal
    issued_at: datetime | None
    address: str


def documents_matching(teams: QuerySet[Team], text: str, most: int = SHOWN) -> list[DocumentMatch]:
    """Return at most `most` documents of `teams` that match every word of `text`, newest first."""
    words = text.split()
    if not words:
        return []
    invoices = _fitting(Invoice.objects.filter(team__in=teams), words, "invoice", "period__month")
    notes = _fitting(Note.objects.filter(team__in=teams, number__isnull=False), words, "note", "correction__period__month")
    found = [*_invoices(invoices, most), *_notes(notes, most)]
    return sorted(found, key=lambda item: (item.month, item.number), reverse=True)[:most]


def _fitting(documents: QuerySet[Any], words: Iterable[str], event: str, month: str) -> QuerySet[Any]:
    for word in words:
        referred = DocumentEvent.objects.filter(**{event: OuterRef("pk")}, reference__icontains=word)
        named = Q(number__icontains=word) | Q(team__code__icontains=word) | Q(team__name__icontains=word)
        fits = named | Q(Exists(referred))
        if MONTH.fullmatch(word):
            fits |= Q(**{month: word})
        if (amount := _amount(word)) is not None:
            fits |= Q(total__in=[amount, -amount])
        documents = documents.filter(fits)
    return documents.defer("draft", "document")


def _amount(word: str) -> Decimal | None:
    """Return ``1,234.50`` as a decimal, None if it is not one; a credit is found with and without its sign."""
    try:
        amount = Decimal(word.replace(",", "").replace("\N{MINUS SIGN}", "-"))
    except InvalidOperation:
        return None
    return amount if amount.is_finite() else None


def _invoices(rows: QuerySet[Invoice], most: int) -> list[DocumentMatch]:
    newest = rows.select_related("team", "period").order_by("-period__month", "-id")[:most]
    return [
        DocumentMatch(
            "shadow" if row.shadow else "invoice", row.number or "", row.team, row.period.month, row.status, row.total,
            row.issued_at, reverse("portal:invoice", args=[row.pk]),
        )
        for row in newest
    ]  # fmt: skip


def _notes(rows: QuerySet[Note], most: int) -> list[DocumentMatch]:
    newest = rows.select_related("team", "correction__period").order_by("-id")[:most]
    return [
        DocumentMatch(
            row.kind, row.number or "", row.team, row.correction.period.month if row.correction.period else "", "issued",
            row.total, row.issued_at, reverse("portal:note", args=[row.pk]),
        )
        for row in newest
    ]  # fmt: skip
