"""A YAML file of price lists -> drafts. Nothing is published: that takes a submission and a second person."""

from datetime import datetime
from pathlib import Path

from django.db import transaction

from billing.rates.models import PriceDraft
from billing.rates.selectors import price_draft_named
from billing.rates.services import RateError, price_draft_create, price_draft_edit
from billing.setup.file import Entry, SetUpFileError, read_fields
from billing.setup.price_entries import cost_sheet_store, price_entry, token_cost_sheet_store
from billing.tenancy.selectors import billing_setup


def price_lists_import(
    *, path: Path, actor: str, now: datetime, reason: str | None = None
) -> list[tuple[PriceDraft, str]]:
    """Store the cost sheets of a file and make or change one draft per list; each draft with what became of it.

    Raises SetUpFileError, with nothing changed.
    """
    setup = billing_setup()
    top = Entry(read_fields(path), "", path)
    done: list[tuple[PriceDraft, str]] = []
    try:
        with transaction.atomic():
            for sheet in top.entries("cost_sheets"):
                cost_sheet_store(sheet, actor)
            for sheet in top.entries("token_cost_sheets"):
                token_cost_sheet_store(sheet, actor)
            for entry in top.entries("price_versions"):
                found = price_entry(entry, zone=setup.zone, currency=setup.currency)
                done.append(_draft(found.name, found.valid_from, found.prices.content, actor, now, reason))
            top.where = "(top)"
            top.finish()
    except RateError as error:
        raise SetUpFileError(f"{path}: {error}") from error
    if not done:
        raise SetUpFileError(f"{path}: price_versions: is missing, there is nothing to import")
    return done


def _draft(
    name: str, valid_from: datetime, content: dict[str, list[dict[str, str]]], actor: str, now: datetime, reason: str | None
) -> tuple[PriceDraft, str]:
    known = price_draft_named(name)
    if known is None or known.state == PriceDraft.State.APPROVED:
        made = price_draft_create(
            name=name, valid_from=valid_from, content=content, actor=actor, now=now, reason=reason or ""
        )
        return made, "made"
    if known.content == content and known.valid_from == valid_from and reason in (None, known.reason):
        return known, "unchanged"
    edited = price_draft_edit(draft=known, actor=actor, now=now, valid_from=valid_from, content=content, reason=reason)
    return edited, "changed"
