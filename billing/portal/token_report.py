"""Load-test reports as tools wrote them -> the token workbench's own format, and the draft that their prices become.

Nothing is stored before it is saved: between requests the page holds the report. The saved sheet is the report with the
hardware, engine, precision and method that its prices rest on, under a name of its own.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final

from django.core.files.uploadedfile import UploadedFile
from django.forms import HiddenInput, TextInput
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.portal.forms import Input, InputsForm, Text
from billing.portal.price_lists import published_versions
from billing.portal.workbench import DraftForm
from billing.rates.models import PriceDraft
from billing.rates.price_file import version_content
from billing.rates.services import price_draft_write
from billing.runtime.translation import translated
from metering.messages import Message
from pricing.documents import DocumentError
from pricing.fields import Bound, FieldProblem, InputError, exact_number, shown
from pricing.loadtests.own import GPUS
from pricing.loadtests.reports import Supplement, read_report
from pricing.token_sheet import PART, TokenSheetError

LARGEST_REPORT: Final = 1 << 23
"""Most bytes of a file; per-request details make reports long."""

LARGEST_KEPT: Final = 1 << 18
"""Most characters of the reports in the workbench's format, which the page holds."""

MOST_REPORTS: Final = 50
SUPPLEMENT: Final = ("accelerator", "gpus", "model", "engine", "precision", "error_rate", "cached_input_share")
"""Fields that a tool's report may leave out; a value of the report itself stays."""

NUMBERS: Final = {"gpus": GPUS, "error_rate": PART, "cached_input_share": PART}
NEEDED_TO_SAVE: Final = ("accelerator", "engine", "precision")


class ReportForm(InputsForm):
    """Form of reports in files with the fields that they leave out, or `report`: those that the page holds already."""

    report = Text(required=False, widget=HiddenInput)

    def __init__(self, data: Any = None, files: Sequence[UploadedFile] = ()) -> None:
        self.files_sent, self.reports = files, list[dict[str, Any]]()
        hint, widget = gettext("where the report does not say"), TextInput(attrs={"maxlength": 256})
        super().__init__(data, {name: Input(name, hint, widget=widget) for name in SUPPLEMENT}, prefix="r")

    def clean(self) -> None:
        try:
            self.reports = kept_reports(self.cleaned_data["report"]) if self.cleaned_data["report"] else self._uploaded()
        except InputError as error:
            self.keep_all(error.problems)
        except ValueError as error:
            self.keep(None, translated(Message.of(error)))

    def _uploaded(self) -> list[dict[str, Any]]:
        """Return every file in the workbench's format, completed by the form's fields.  Raises InputError, ValueError."""
        if not 0 < len(self.files_sent) <= MOST_REPORTS:
            raise ValueError(gettext("file: choose 1 to %(most)d reports of load tests") % {"most": MOST_REPORTS})
        given = self.cleaned_data
        numbers = {name: exact_number(given[name]) for name in NUMBERS}
        problems = [
            FieldProblem((name,), Message("%(value)s %(range)s", value=shown(given[name]), range=bound.expected))
            for name, bound in NUMBERS.items()
            if given[name] and not _holds(bound, numbers[name])
        ]
        if problems:
            raise InputError(problems)
        extra = Supplement(accelerator=given["accelerator"], model=given["model"], **numbers)
        reports = []
        for file in self.files_sent:
            try:
                reports.append(_named(_read(file, extra), given))
            except DocumentError as error:
                self.keep(None, translated(error))
        return reports


def _holds(bound: Bound, number: Fraction | None) -> bool:
    return number is not None and bound.holds(number)


def _read(file: UploadedFile, extra: Supplement) -> Any:
    name = file.name or "file"
    if file.size is None or file.size > LARGEST_REPORT:
        raise DocumentError(Message(
            "%(name)s: has %(size)s bytes, at most %(most)s are read", name=name, size=file.size or 0, most=LARGEST_REPORT
        ))
    return read_report(file.read(), name, extra).value


def _named(report: Any, given: Mapping[str, str]) -> dict[str, Any]:
    if not isinstance(report, Mapping):
        return {"runs": report}
    named = {name: given[name] for name in ("engine", "precision") if given[name] and not report.get(name)}
    return {**report, **named}


def kept_text(reports: Sequence[Mapping[str, Any]]) -> str:
    """Return the reports as the page holds them; numbers as they were written."""
    return json.dumps(list(reports), ensure_ascii=False, separators=(",", ":"), default=_exact)


def _exact(value: object) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    raise TypeError(f"{value!r} cannot be in a report")


def kept_reports(text: str) -> list[dict[str, Any]]:
    """Return the reports that the page held.  Raises ValueError for a text that the page did not make."""
    if len(text) > LARGEST_KEPT:
        raise ValueError(gettext("report: is longer than %(most)d characters") % {"most": LARGEST_KEPT})
    try:
        found = json.loads(text, parse_float=Decimal)
    # deeply nested JSON passes the length check and fails here
    except RecursionError as error:
        raise ValueError(gettext("report: is not what the page sent: upload it again")) from error
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError(gettext("report: is not what the page sent: upload it again"))
    return found


class TokenDraftForm(DraftForm):
    """Form of the draft whose model is priced by the load test."""

    new_sheet = Text(required=False, label=_("Name of the load test"))


def token_draft_write(
    *, sheet: Mapping[str, Any], actor: str, now: datetime, draft_name: str, valid_from: str, new_sheet: str, reason: str
) -> PriceDraft:
    """Store a load test, and a draft of the newest list with its model priced by it.

    Raises TokenSheetError if the report lacks what its prices would rest on, PriceDraftError.
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
    base = published_versions().first()
    content = version_content(base) if base else {"gpu": [], "tokens": []}
    others = [row for row in content["tokens"] if row["model"] != model]
    fields = {
        **({"based_on": base.name} if base else {}), "name": draft_name, "valid_from": valid_from, "reason": reason,
        **({"gpu": content["gpu"]} if content["gpu"] else {}),
        "tokens": [*others, {"model": model, "cost_sheet": new_sheet}],
        "token_cost_sheets": [{"name": new_sheet, "sheet": dict(sheet)}],
    }  # fmt: skip
    return price_draft_write(fields=fields, actor=actor, now=now)
