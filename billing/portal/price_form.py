"""Forms of price drafts: rows of tables <-> the content of a draft, and a step towards publication with its reason."""

from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.http import QueryDict
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.portal.forms import Moment, PageForm, RowForm, RowsForm
from billing.rates.labels import PRICE_SOURCE, token_class_words
from billing.rates.price_list import GPU_PRICES, UP_TO
from billing.runtime.translation import translated
from pricing.fields import FieldProblem
from pricing.rate_card import TOKEN_CLASSES

BLANK_ROWS = 2
MOST_REVISIONS = 10**8
WORDS: Mapping[str, Any] = {
    "submit": _("Why do prices change?"),
    "approve": _("Note (kept with the approval)"),
    "reject": _("What is wrong?"),
}
"""Label of the reason, by step of a draft."""
Content = Mapping[str, Sequence[Mapping[str, str]]]


class GpuRow(RowForm):
    """Row of the price of an accelerator or a resource, or of the sheet that it comes from."""

    offered = ("gpu_source",)
    gpu_accelerator = forms.CharField(label=_("Accelerator"))
    gpu_resource = forms.CharField(label=_("Resource"))
    gpu_source = forms.ChoiceField(label=_("Priced by"), choices=list(PRICE_SOURCE.items()))
    gpu_value = forms.CharField(
        label=_("Price or sheet"), widget=forms.TextInput(attrs={"class": "n", "list": "sheets", "inputmode": "decimal"})
    )

    @staticmethod
    def of(entry: Mapping[str, str]) -> dict[str, str]:
        source = next(name for name in GPU_PRICES if name in entry)
        named = {f"gpu_{name}": entry.get(name, "") for name in ("accelerator", "resource")}
        return {**named, "gpu_source": source, "gpu_value": entry[source]}

    def entry(self) -> dict[str, str]:
        """Return the entry of the list; an empty price stays in, so that the refusal names it."""
        asked = self.cleaned_data
        named = {name: asked[f"gpu_{name}"] for name in ("accelerator", "resource") if asked[f"gpu_{name}"]}
        return {**named, asked["gpu_source"]: asked["gpu_value"]}


def _price(label: Any) -> forms.CharField:
    return forms.CharField(label=label, widget=forms.TextInput(attrs={"class": "n", "inputmode": "decimal"}))


class _TokenRow(RowForm):
    """Row of the prices of a model by class, or of the load test that they follow from."""

    @staticmethod
    def of(entry: Mapping[str, str]) -> dict[str, str]:
        return {f"tokens_{name}": value for name, value in entry.items()}

    def entry(self) -> dict[str, str]:
        return {name.removeprefix("tokens_"): value for name, value in self.cleaned_data.items() if value}


TokenRow = type("TokenRow", (_TokenRow,), {
    "tokens_model": forms.CharField(label=_("Model")),
    f"tokens_{UP_TO}": _price(_("Prompts up to")),
    **{f"tokens_{name}": _price(token_class_words(name)) for name in TOKEN_CLASSES},
    "tokens_cost_sheet": forms.CharField(label=_("Load test"), widget=forms.TextInput(attrs={"list": "token-sheets"})),
})  # fmt: skip
"""Row with a column for each class of tokens that has a price."""


class PriceForm(RowsForm):
    """Form of a complete price list: its name, its start, the reason for it, and its prices."""

    name = forms.CharField(label=_("Name"), required=False, widget=forms.TextInput(attrs={"maxlength": 200}))
    valid_from = Moment(label=_("In force from"))
    reason = forms.CharField(
        label=_("Why do prices change?"), required=False, widget=forms.Textarea(attrs={"rows": 2, "maxlength": 2000})
    )
    revision = forms.IntegerField(required=False, min_value=0, max_value=MOST_REVISIONS, widget=forms.HiddenInput)
    base = forms.CharField(required=False, max_length=200, widget=forms.HiddenInput)

    def __init__(self, data: QueryDict | None = None, *, initial: Any = None, content: Content | None = None) -> None:
        super().__init__(data, initial=initial)
        self.fields["valid_from"].widget.attrs["step"] = 1
        self.gpu, self.tokens = self._rows(GpuRow, "gpu", content), self._rows(TokenRow, "tokens", content)
        self.rows = [*self.gpu, *self.tokens]

    def _rows(self, row: Any, table: str, content: Content | None) -> list[Any]:
        """Return the rows of a table as they were sent or are stored, with some blank ones below."""
        entries = (content or {}).get(table, ())
        rows = row.table(self.data if self.is_bound else None, map(row.of, entries))
        return rows + [row(number=len(rows) + ahead) for ahead in range(1, BLANK_ROWS + 1)]

    def content(self) -> dict[str, list[dict[str, str]]]:
        """Return the list as the services take it; blank rows are left out."""
        tables = {"gpu": self.gpu, "tokens": self.tokens}
        return {table: [row.entry() for row in rows if row.is_bound] for table, rows in tables.items()}

    def row_messages(self) -> list[str]:
        """Return the refusals of the rows, each with the place of its row."""
        rows = [(gettext("GPU prices"), self.gpu), (gettext("token prices"), self.tokens)]
        return [
            gettext("%(table)s, row %(number)d: %(text)s") % {"table": table, "number": number, "text": text}
            for table, found in rows
            for number, row in enumerate(found, start=1)
            for text in row.messages
        ]

    def refuse(self, error: Any) -> None:
        """Keep each problem of a draft beside its field."""
        self.error = error
        for problem in error.problems:
            self._refuse(problem)

    def _refuse(self, problem: FieldProblem) -> None:
        table, *place = problem.path or ("",)
        rows = {"gpu": self.gpu, "tokens": self.tokens}.get(str(table))
        if rows is None or not place or not isinstance(place[0], int):
            self.keep(problem.field, translated(problem.message))
            return
        row, column = rows[place[0]], str(place[1]) if len(place) > 1 else ""
        field = "gpu_value" if table == "gpu" and column in GPU_PRICES else f"{table}_{column}"
        row.keep(field, translated(problem.text))


class StepForm(PageForm):
    """Form of a step of a draft with its reason; `revision`: the one that the acting person looked at."""

    revision = forms.IntegerField(required=False, min_value=0, max_value=MOST_REVISIONS, widget=forms.HiddenInput)
    reason = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 3, "maxlength": 2000}))

    def __init__(self, step: str, data: Any = None, *, initial: Any = None) -> None:
        super().__init__(data, key=step, initial=initial)
        self.fields["reason"].label = WORDS.get(step, _("Reason"))
        if step in ("submit", "reject"):
            self.fields["reason"].widget.attrs["required"] = True
