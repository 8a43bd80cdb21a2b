"""The form of a price draft: rows of a table <-> the content of a draft, and each refusal beside the field it is about."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.http import QueryDict
from django.utils.translation import gettext

from billing.rates.price_list import GPU_PRICES, UP_TO
from billing.runtime.translation import translated
from metering.messages import Message
from pricing.fields import FieldProblem, path_text, shown
from pricing.rate_card import TOKEN_CLASSES

BLANK_ROWS = 2
GPU_COLUMNS = ("accelerator", "resource", "source", "value")
TOKEN_COLUMNS = ("model", UP_TO, *TOKEN_CLASSES, "cost_sheet")
Content = dict[str, list[dict[str, str]]]


@dataclass
class Row:
    """One row of a table as it stands in the form, with what is wrong with it by column."""

    cells: dict[str, str]
    errors: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_blank(self) -> bool:
        """Whether nothing was written; the choice of a unit alone is nothing."""
        return not any(value for name, value in self.cells.items() if name != "source")

    @property
    def messages(self) -> list[str]:
        """Everything that is wrong with the row."""
        return [text for texts in self.errors.values() for text in texts]


@dataclass
class PriceForm:
    """What the form shows. Texts are kept as they were written, so that a refusal loses nothing."""

    name: str
    valid_from: str
    reason: str
    gpu: list[Row]
    tokens: list[Row]
    revision: int = 0
    errors: dict[str, list[str]] = field(default_factory=dict)

    @property
    def all_messages(self) -> list[str]:
        """Every refusal, those of rows with the place of the row."""
        own = [
            translated(Message("%(field)s: %(text)s", field=name, text=text))
            for name, texts in self.errors.items()
            for text in texts
        ]
        rows = [(gettext("GPU prices"), self.gpu), (gettext("token prices"), self.tokens)]
        return own + [
            gettext("%(table)s, row %(number)d: %(text)s") % {"table": table, "number": number, "text": translated(text)}
            for table, found in rows
            for number, row in enumerate(found, start=1)
            for text in row.messages
        ]

    def content(self) -> Content:
        """The list as the services take it; blank rows are left out."""
        return {
            "gpu": [_gpu_entry(row) for row in self.gpu if not row.is_blank],
            "tokens": [
                {name: value for name, value in row.cells.items() if value} for row in self.tokens if not row.is_blank
            ],
        }

    def start(self, zone: str) -> datetime | None:
        """The instant in UTC; None, with the refusal noted, where the text is none."""
        try:
            local = datetime.fromisoformat(self.valid_from)
        except ValueError:
            self.errors["valid_from"] = [
                Message("%(value)s must be a day and time such as 2026-12-01T00:00", value=shown(self.valid_from))
            ]
            return None
        return (local if local.tzinfo else local.replace(tzinfo=ZoneInfo(zone))).astimezone(UTC)

    def refuse(self, problems: Iterable[FieldProblem]) -> None:
        """Put each problem beside its field."""
        rows = {"gpu": self.gpu, "tokens": self.tokens}
        for problem in problems:
            table = rows.get(str(problem.path[0])) if problem.path else None
            if table is None or len(problem.path) < 2 or not isinstance(problem.path[1], int):
                self.errors.setdefault(path_text(problem.path), []).append(problem.text)
                continue
            row = [row for row in table if not row.is_blank][problem.path[1]]
            column = str(problem.path[2]) if len(problem.path) > 2 else ""
            place = "value" if table is self.gpu and column in GPU_PRICES else column
            row.errors.setdefault(place, []).append(problem.text)


def _gpu_entry(row: Row) -> dict[str, str]:
    """An empty price stays in, so that the refusal names it."""
    cells = row.cells
    source = cells["source"] if cells["source"] in GPU_PRICES else GPU_PRICES[0]
    named = {name: cells[name] for name in ("accelerator", "resource") if cells[name]}
    return {**named, source: cells["value"]}


def form_of_content(
    content: Content, *, name: str, valid_from: datetime, zone: str, reason: str = "", revision: int = 0
) -> PriceForm:
    """The form of a stored list, with some blank rows."""
    local = valid_from.astimezone(ZoneInfo(zone)).strftime("%Y-%m-%dT%H:%M:%S")
    gpu = [Row(_gpu_cells(entry)) for entry in content["gpu"]]
    tokens = [Row({column: entry.get(column, "") for column in TOKEN_COLUMNS}) for entry in content["tokens"]]
    return _padded(PriceForm(name, local, reason, gpu, tokens, revision))


def _gpu_cells(entry: dict[str, str]) -> dict[str, str]:
    source = next(name for name in GPU_PRICES if name in entry)
    return {
        "accelerator": entry.get("accelerator", ""), "resource": entry.get("resource", ""), "source": source,
        "value": entry[source],
    }  # fmt: skip


def form_of_post(data: QueryDict) -> PriceForm:
    """The form as it was sent: the columns of a table come as lists of one length, or are left out."""
    revision = data.get("revision", "")
    return _padded(
        PriceForm(
            data.get("name", "").strip(), data.get("valid_from", "").strip(), data.get("reason", "").strip(),
            _rows(data, "gpu", GPU_COLUMNS), _rows(data, "tokens", TOKEN_COLUMNS),
            int(revision) if revision.isdecimal() and len(revision) < 9 else 0,
        )
    )  # fmt: skip


def _rows(data: QueryDict, table: str, columns: tuple[str, ...]) -> list[Row]:
    given: list[list[Any]] = [data.getlist(f"{table}_{column}") for column in columns]
    lists = [values or [""] * max(map(len, given)) for values in given]
    sent = zip(*lists, strict=False)
    rows = (Row({name: str(value).strip() for name, value in zip(columns, values, strict=True)}) for values in sent)
    return [row for row in rows if not row.is_blank]


def _padded(form: PriceForm) -> PriceForm:
    for _ in range(BLANK_ROWS):
        form.gpu.append(Row(dict.fromkeys(GPU_COLUMNS, "") | {"source": GPU_PRICES[0]}))
        form.tokens.append(Row(dict.fromkeys(TOKEN_COLUMNS, "")))
    return form
