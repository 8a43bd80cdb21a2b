"""Import of price lists, YAML or a table -> drafts. Publication takes a submission and a second person."""

from datetime import datetime
from pathlib import Path

from django.db import transaction

from billing.rates.models import PriceDraft
from billing.rates.selectors import price_draft_named
from billing.rates.services import RateError, price_draft_create, price_draft_edit
from billing.runtime.tables import is_table
from billing.setup.file import Entry, SetUpFileError, read_fields
from billing.setup.price_entries import PriceEntry, cost_sheet_store, price_entry, token_cost_sheet_store
from billing.setup.price_table import price_table
from billing.tenancy.models import BillingSetup
from billing.tenancy.selectors import billing_setup


def price_lists_import(
    *, path: Path, actor: str, now: datetime, reason: str | None = None, sheet: str | None = None
) -> list[tuple[PriceDraft, str]]:
    """Create or change one draft per list of a file (and store the cost sheets of a YAML file); return each with its change.

    `sheet` names a sheet of a workbook; None for the first one.  Raises SetUpFileError, with nothing changed.
    """
    setup = billing_setup()
    try:
        with transaction.atomic():
            if is_table(path) or sheet is not None:
                lists = price_table(path, zone=setup.zone, currency=setup.currency, sheet=sheet)
            else:
                lists = _lists_of_yaml(path, actor, setup)
            return [_draft(found.name, found.valid_from, found.prices.content, actor, now, reason) for found in lists]
    except RateError as error:
        raise SetUpFileError(f"{path}: {error}") from error


def _lists_of_yaml(path: Path, actor: str, setup: BillingSetup) -> list[PriceEntry]:
    top = Entry(read_fields(path), "", path)
    for sheet in top.entries("cost_sheets"):
        cost_sheet_store(sheet, actor)
    for sheet in top.entries("token_cost_sheets"):
        token_cost_sheet_store(sheet, actor)
    lists = [price_entry(entry, zone=setup.zone, currency=setup.currency) for entry in top.entries("price_versions")]
    top.finish()
    if not lists:
        raise SetUpFileError(f"{path}: price_versions: is missing, there is nothing to import")
    return lists


def _draft(
    name: str, valid_from: datetime, content: dict[str, list[dict[str, str]]], actor: str, now: datetime, reason: str | None
) -> tuple[PriceDraft, str]:
    known = price_draft_named(name)
    # an approved draft is published and never edited: its name makes a new draft
    if known is None or known.state == PriceDraft.State.APPROVED:
        made = price_draft_create(
            name=name, valid_from=valid_from, content=content, actor=actor, now=now, reason=reason or ""
        )
        return made, "made"
    if known.content == content and known.valid_from == valid_from and reason in (None, known.reason):
        return known, "unchanged"
    edited = price_draft_edit(draft=known, actor=actor, now=now, valid_from=valid_from, content=content, reason=reason)
    return edited, "changed"
