"""Draft as one document, in the shape of the set-up file: input of the API and text in the admin.

    {"name": ..., "valid_from": ..., "reason": ..., "based_on": ..., "gpu": [...], "tokens": [...],
     "cost_sheets": [{"name": ..., "sheet": {...}}], "token_cost_sheets": [...]}

Sheets are stored before the prices that are made from them, in the same transaction.
"""

from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Final

from django.db import transaction

from billing.rates.models import PriceDraft
from billing.rates.services.drafts import PriceDraftError, price_draft_create, price_draft_edit
from billing.rates.services.sheets import cost_sheet_put, token_cost_sheet_put
from billing.tenancy.selectors import billing_setup
from metering.intervals import declared_instant
from metering.messages import Message
from pricing.fields import FieldProblem, FieldReader, InputError, shown
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet

FIELDS: Final = ("name", "valid_from", "reason", "based_on", "gpu", "tokens", "cost_sheets", "token_cost_sheets")
REASON_LIMIT: Final = 2000


def price_draft_write(
    *, fields: object, actor: str, now: datetime, draft: PriceDraft | None = None, revision: int | None = None
) -> PriceDraft:
    """Create a draft from a document, or update one; fields missing in the document stay.

    Raises PriceDraftError with every bad field; then nothing is stored.
    """
    reader = FieldReader(fields, "a price version")
    if reader.problems:
        raise PriceDraftError(reader.problems)
    name = reader.text("name", default=None if draft is None else draft.name, limit=200)
    reason = reader.text("reason", default="" if draft is None else draft.reason, limit=REASON_LIMIT)
    base = reader.text("based_on", default="", limit=200)
    valid_from = _instant(reader, draft)
    reader.finish(FIELDS)
    if reader.problems or valid_from is None:
        raise PriceDraftError(reader.problems)
    known = {} if draft is None else draft.content
    content = {part: reader.fields.get(part, known.get(part)) for part in ("gpu", "tokens")}
    with transaction.atomic():
        # with the draft in one transaction: a refused draft leaves no sheet behind
        _store_sheets(reader, "cost_sheets", actor)
        _store_sheets(reader, "token_cost_sheets", actor)
        if reader.problems:
            raise PriceDraftError(reader.problems)
        if draft is None:
            return price_draft_create(
                name=name, valid_from=valid_from, content=content, actor=actor, now=now, reason=reason, base=base
            )
        return price_draft_edit(
            draft=draft, actor=actor, now=now, name=name, valid_from=valid_from, content=content, reason=reason,
            revision=revision, base=base,
        )  # fmt: skip


def _instant(reader: FieldReader, draft: PriceDraft | None) -> datetime | None:
    """Return the start: RFC 3339 with an offset, or a date as local midnight in the billing zone."""
    given = reader.fields.get("valid_from")
    if not reader.has("valid_from") and draft is not None:
        return draft.valid_from
    expected = Message("must be a date, or an RFC 3339 instant with an offset, from 2000 to 2199")
    if not reader.has("valid_from"):
        reader.refuse("valid_from", Message("is missing, %(range)s", range=expected))
        return None
    with suppress(ValueError):
        return declared_instant(str(given).strip(), billing_setup().zone)
    reader.refuse("valid_from", Message("%(value)s %(range)s", value=shown(given), range=expected))
    return None


def _store_sheets(reader: FieldReader, section: str, actor: str) -> None:
    for entry in reader.mappings(section, "a sheet"):
        name, sheet = entry.text("name", limit=200), entry.fields.get("sheet")
        if not isinstance(sheet, Mapping):
            entry.refuse("sheet", Message("is missing, must be a mapping of the fields of a cost sheet"))
            continue
        entry.finish(("name", "sheet"))
        try:
            if section == "cost_sheets":
                result = cost_of_gpu_hour(parse_cost_sheet(sheet)).as_dict()
                cost_sheet_put(name=name, inputs=dict(sheet), result=result, actor=actor)
            else:
                token_cost_sheet_put(name=name, inputs=dict(sheet), actor=actor)
        except InputError as error:
            path = (*entry.path, "sheet")
            reader.problems += [FieldProblem((*path, *problem.path), problem.text) for problem in error.problems]
        except ValueError as error:  # a sheet in use, or reports without a sustainable run or of two deployments
            entry.refuse("sheet", Message.of(error))
