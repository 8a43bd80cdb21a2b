"""A load-test report as a tool wrote it -> its own format on the token workbench, and the draft that its prices become.

Nothing is kept before it is saved: between two looks the page holds the report. What is saved is the report with the
hardware, engine, precision and method that its prices rest on, under a name of its own.
"""

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final

from django.core.files.uploadedfile import UploadedFile
from django.utils.translation import gettext

from billing.portal.price_lists import published_versions
from billing.portal.workbench import draft_fields
from billing.rates.price_file import version_content
from metering.messages import Message
from pricing.documents import DocumentError
from pricing.fields import Bound, FieldProblem, exact_number, shown
from pricing.loadtests.own import GPUS
from pricing.loadtests.reports import Supplement, read_report
from pricing.token_sheet import PART, TokenSheetError

LARGEST_REPORT: Final = 1 << 23
"""Bytes of a file; per-request details make reports long."""

LARGEST_KEPT: Final = 1 << 18
"""Characters of the reports in their own format, which the page holds."""

MOST_REPORTS: Final = 50
TOLD_BY_PEOPLE: Final = ("accelerator", "gpus", "model", "engine", "precision", "error_rate", "cached_input_share")
"""What a tool's report may leave out: what it says itself stays."""

NUMBERS_BY_PEOPLE: Final = {"gpus": GPUS, "error_rate": PART, "cached_input_share": PART}
NEEDED_TO_SAVE: Final = ("accelerator", "engine", "precision")


def uploaded_reports(files: Sequence[UploadedFile], asked: Mapping[str, Any]) -> tuple[list[dict[str, Any]], Sequence[str]]:
    """Every file in the own format, completed by what was written beside it, and what is wrong."""
    if not files or len(files) > MOST_REPORTS:
        return [], [gettext("file: choose 1 to %(most)d reports of load tests") % {"most": MOST_REPORTS}]
    told = {name: str(asked.get(name, "")).strip() for name in TOLD_BY_PEOPLE}
    numbers = {name: exact_number(told[name]) for name in NUMBERS_BY_PEOPLE}
    refusals = [
        FieldProblem((name,), Message("%(value)s %(range)s", value=shown(told[name]), range=bound.expected)).message
        for name, bound in NUMBERS_BY_PEOPLE.items()
        if told[name] and not _holds(bound, told[name])
    ]
    if refusals:
        return [], refusals
    extra = Supplement(accelerator=told["accelerator"], model=told["model"], **numbers)
    reports = []
    for file in files:
        try:
            reports.append(_named(_read(file, extra), told))
        except DocumentError as error:
            refusals.append(error.message)
    return reports, refusals


def _holds(bound: Bound, text: str) -> bool:
    number = exact_number(text)
    return number is not None and bound.holds(number)


def _read(file: UploadedFile, extra: Supplement) -> Any:
    name = file.name or "file"
    if file.size is None or file.size > LARGEST_REPORT:
        told = {"name": name, "size": file.size or 0, "most": LARGEST_REPORT}
        raise DocumentError(Message("%(name)s: has %(size)s bytes, at most %(most)s are read", **told))
    return read_report(file.read(), name, extra).value


def _named(report: Any, told: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(report, Mapping):
        return {"runs": report}
    named = {name: told[name] for name in ("engine", "precision") if told[name] and not report.get(name)}
    return {**report, **named}


def kept_text(reports: Sequence[Mapping[str, Any]]) -> str:
    """The reports as the page holds them; numbers as they were written."""
    return json.dumps(list(reports), ensure_ascii=False, separators=(",", ":"), default=_exact)


def _exact(value: object) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    raise TypeError(f"{value!r} cannot stand in a report")


def kept_reports(text: str) -> list[dict[str, Any]]:
    """The reports that the page held.  Raises ValueError for a text that it did not make."""
    if len(text) > LARGEST_KEPT:
        raise ValueError(gettext("report: is longer than %(most)d characters") % {"most": LARGEST_KEPT})
    try:
        found = json.loads(text, parse_float=Decimal)
    except RecursionError as error:
        raise ValueError(gettext("report: is not what the page held: upload it again")) from error
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError(gettext("report: is not what the page held: upload it again"))
    return found


def draft_of_tokens(sheet: Mapping[str, Any], sent: Mapping[str, str]) -> dict[str, Any]:
    """The newest list with the model priced by this report, as `price_draft_write` takes it.

    Raises TokenSheetError where the report does not say what its prices would rest on.
    """
    reports = sheet["report"] if isinstance(sheet["report"], list) else [sheet["report"]]
    problems = [
        FieldProblem(("report", index, field), Message("is missing: a price is stored with what was tested"))
        for index, report in enumerate(reports)
        for field in NEEDED_TO_SAVE
        if not str(report.get(field, "")).strip()
    ]
    if problems or not reports:
        raise TokenSheetError(problems)
    model = str(reports[0].get("model", "")).strip()
    base, sheet_name = published_versions().first(), sent.get("new_sheet", "").strip()
    content = version_content(base) if base else {"gpu": [], "tokens": []}
    others = [row for row in content["tokens"] if row["model"] != model]
    return {
        **draft_fields(sent), **({"gpu": content["gpu"]} if content["gpu"] else {}),
        "tokens": [*others, {"model": model, "cost_sheet": sheet_name}],
        "token_cost_sheets": [{"name": sheet_name, "sheet": dict(sheet)}],
    }  # fmt: skip
