"""Writing the ledger journal of a month to a file, and reading the chart of accounts it is posted to."""

from dataclasses import dataclass, fields
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import yaml

from billing.invoicing.issued import issued_documents
from billing.invoicing.journal import Chart, Journal, journal_csv, journal_of
from billing.invoicing.selectors import document_of
from billing.invoicing.whole_file import whole_file

BY_TEAM = ("cost_centers", "internal_orders")


class ChartError(ValueError):
    """A chart of accounts that says something nobody understands."""


@dataclass(frozen=True)
class Exported:
    """What went into the file."""

    journals: list[Journal]
    debit: Decimal
    credit: Decimal


def journal_export(*, month: str, path: Path, chart: Chart) -> Exported:
    """Write one balanced journal per issued invoice and note; the same month and chart give the same bytes.

    Raises NoPeriodError, NotIssuedError, JournalError.
    """
    _, documents = issued_documents(month)
    journals = [journal_of(document_of(document), chart) for document in documents]
    body = journal_csv(journals)
    with whole_file(path) as draft:
        draft.write_bytes(body)
    zero = Decimal("0.00")
    return Exported(journals, sum((j.debit for j in journals), zero), sum((j.credit for j in journals), zero))


def chart_read(path: Path) -> dict[str, Any]:
    """The fields of a chart from a YAML file.  Raises ChartError naming the field."""
    try:
        content = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ChartError(f"{path}: is not YAML: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(content, dict):
        raise ChartError(f"{path}: must be a mapping of fields")
    known = [item.name for item in fields(Chart)]
    for name, value in content.items():
        if name not in known:
            raise ChartError(f"{path}: field {str(name)[:40]!r} is none of {', '.join(known)}")
        _check_value(path, name, value)
    return content


def _check_value(path: Path, name: str, value: object) -> None:
    if name == "posting_date":
        if type(value) is not date:
            raise ChartError(f"{path}: posting_date {value!r} must be a date such as 2026-10-31")
    elif name in BY_TEAM:
        if not isinstance(value, dict) or not all(isinstance(text, str) for pair in value.items() for text in pair):
            raise ChartError(f"{path}: {name} must map team codes to text; put numbers in quotes")
    elif not isinstance(value, str):
        raise ChartError(f"{path}: {name} {value!r} must be text; put a number in quotes")
