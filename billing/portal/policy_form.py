"""Forms of policies and carbon factors: each builds the section that `apply` takes, from the latest policy on."""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final

from django import forms
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.portal.forms import Line, Midnight, Number, PageForm, RowForm, RowsForm, Text
from billing.portal.setup_form import BillingForm
from billing.setup.policies import SECTIONS, policies_text
from billing.setup.terms import REASONS
from billing.usage.labels import END_REASON
from metering.names import MAX_NAME_BYTES
from pricing.allocation import Method
from pricing.efficiency import Metric

MOST_BYTES: Final = 1024 * 1024
BLANK_ROWS: Final = 2
PAYERS: Final = (
    ("", "—"), ("team", _("The team")), ("platform", _("The platform")), ("cap", _("The platform, at most so many hours")),
)
METHODS: Final = (("proportional", _("By use")), ("even", _("Evenly")), ("fixed", _("By fixed shares")))
SHARE: Final = re.compile(r"\s*([^\s:=,]+)\s*[:=]\s*([0-9.]+)\s*")
SHARES_EXAMPLE: Final = {"placeholder": "nlp: 0.7, cv: 0.3"}
Entry = dict[str, Any]


class PolicyForm(PageForm):
    """Form of a policy that begins on a day and ends the one before; `section`: its key in the set-up file."""

    section = ""
    name = Line(label=_("Name"), max_length=200)
    valid_from = Midnight(label=_("From"))

    def __init__(self, data: Any = None, *, latest: Mapping[str, Any] | None = None) -> None:
        self.latest = latest or {}
        super().__init__(data, key=self.section, initial=None if data is not None else self.shown())

    def shown(self) -> dict[str, Any]:
        """Return the fields of the latest policy as initial values, so that few need a change."""
        return {name: value for name, value in self.latest.items() if name not in ("name", "valid_from")}

    def entry(self) -> Entry:
        """Return the fields of the section, without name and start."""
        raise NotImplementedError

    def text(self) -> str:
        """Return the section as `apply` takes it."""
        begins = timezone.localtime(self.cleaned_data["valid_from"]).isoformat()
        return policies_text({self.section: [{"name": self.cleaned_data["name"], "valid_from": begins, **self.entry()}]})


def _ratio(label: Any, most: int = 1) -> Number:
    return Number(label=label, min_value=0, max_value=most)


class EfficiencyForm(PolicyForm):
    """Form of the bands of MFU and HFU: the penalty below them, and the reward above.

    Classes of workloads and teams without a reward stay as the latest policy has them; the YAML shows them.
    """

    section = "efficiency_policies"
    hfu_below = _ratio(_("Penalty below"))
    penalise_on = forms.ChoiceField(
        label=_("Measured by"), choices=[(metric.value, metric.value.upper()) for metric in Metric]
    )
    penalty = _ratio(_("Penalty, share of the price"), 10)
    mfu_above = _ratio(_("Reward above an MFU of"))
    reward = _ratio(_("Reward, share of the price"))
    min_minutes = forms.IntegerField(label=_("Minutes that a job must run"), min_value=0, initial=30)
    min_coverage = _ratio(_("Share of its time that must be measured"))
    shadow = forms.BooleanField(label=_("Only shown: no money moves"), required=False)
    neutral_pool = forms.BooleanField(label=_("Rewards are paid by penalties: the sum is 0"), required=False)

    def entry(self) -> Entry:
        """Return the fields of the form over those of the latest policy."""
        own = [name for name in self.fields if name not in ("name", "valid_from")]
        asked = {name: _plain(self.cleaned_data[name]) for name in own}
        return {**self.shown(), **asked}


class InterruptionForm(PolicyForm):
    """Form of the payers for the time of jobs that somebody else ended, by end reason."""

    section = "interruption_policies"

    def __init__(self, data: Any = None, *, latest: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, latest=latest)
        for field, reason in REASONS.items():
            words = END_REASON[reason]  # type: ignore[index]
            self.fields[field] = forms.ChoiceField(label=words, choices=PAYERS, required=False)
            hours = Number(label=_("Hours at most"), required=False, min_value=Decimal("0.000001"), max_value=8784)
            self.fields[f"{field}_hours"] = hours

    def shown(self) -> dict[str, Any]:
        """Return the payer of each reason, and the hours of a cap."""
        found: dict[str, Any] = {}
        for field in REASONS:
            rule = self.latest.get(field, "")
            found |= {field: "cap", f"{field}_hours": rule["cap_hours"]} if isinstance(rule, Mapping) else {field: rule}
        return found

    def clean(self) -> dict[str, Any]:
        """Check that each cap has its hours, and that a payer is named."""
        for field in REASONS:
            if self.cleaned_data.get(field) == "cap" and not self.cleaned_data.get(f"{field}_hours"):
                self.add_error(f"{field}_hours", gettext("is missing"))
        if not self.errors and not any(self.cleaned_data[field] for field in REASONS):
            self.add_error(None, gettext("the policy says nothing: name who pays for one of them"))
        return self.cleaned_data

    def entry(self) -> Entry:
        facts = self.cleaned_data
        return {
            field: {"cap_hours": _plain(facts[f"{field}_hours"])} if facts[field] == "cap" else facts[field]
            for field in REASONS if facts[field]
        }  # fmt: skip


class _Split(RowForm):
    method_field = shares_field = ""

    def clean(self) -> dict[str, Any]:
        """Check that shares are given for fixed shares, and only there."""
        text, method = self.cleaned_data[self.shares_field], self.cleaned_data.get(self.method_field)
        if bool(text) != (method == Method.FIXED):
            self.add_error(self.shares_field, gettext("are given for fixed shares, and only there"))
        parts = [SHARE.fullmatch(part) for part in text.split(",")] if text else []
        if not all(parts):
            self.add_error(self.shares_field, gettext("must be ratios by team such as nlp: 0.7, cv: 0.3"))
        self.cleaned_data["shares"] = {part[1]: part[2] for part in parts if part}
        return self.cleaned_data

    @property
    def split(self) -> Entry:
        return {"method": self.cleaned_data[self.method_field] or "proportional", "shares": self.cleaned_data["shares"]}


class IdleRow(_Split):
    method_field, shares_field, offered = "idle_method", "idle_shares", ("idle_method",)
    cluster = Line(label=_("Cluster"), max_length=MAX_NAME_BYTES)
    accelerator = Line(label=_("Accelerator"), max_length=MAX_NAME_BYTES)
    price_per_gpu_hour = Number(label=_("Price per idle GPU-hour"), min_value=Decimal("0.0001"))
    idle_method = forms.ChoiceField(label=_("Split"), choices=METHODS)
    idle_shares = Line(label=_("Shares"), max_length=1000, widget=forms.TextInput(attrs=SHARES_EXAMPLE))


class SharedRow(_Split):
    """Row of a monthly cost that all teams share."""

    method_field, shares_field, offered = "shared_method", "shared_shares", ("shared_method",)
    cost = Line(label=_("Cost"), max_length=200)
    amount_per_month = Number(label=_("Amount a month"), min_value=Decimal("0.01"))
    shared_method = forms.ChoiceField(label=_("Split"), choices=METHODS)
    shared_shares = Line(label=_("Shares"), max_length=1000, widget=forms.TextInput(attrs=SHARES_EXAMPLE))


class AllocationForm(RowsForm, PolicyForm):
    """Form of the billing of idle time and shared cost, from the start of a month on. A row that is emptied is left out.

    A shared cost that is computed from a store keeps its definition if its amount stays empty.
    """

    section = "allocation_policies"

    def __init__(self, data: QueryDict | None = None, *, latest: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, latest=latest)
        self.idle = IdleRow.table(data, self._rows("idle", {}))
        self.shared = SharedRow.table(data, self._rows("shared", {"name": "cost"}))
        self.rows = [*self.idle, *self.shared]

    def shown(self) -> dict[str, Any]:
        """Return no initial values: the rows have their own."""
        return {}

    def _rows(self, kind: str, names: Mapping[str, str]) -> list[dict[str, Any]]:
        """Return the rows of the latest policy as the fields have them, and blank ones."""
        found = [
            {
                **{names.get(name, name): value for name, value in row.items()}, f"{kind}_method": row["method"],
                f"{kind}_shares": ", ".join(f"{team}: {share}" for team, share in row.get("shares", {}).items()),
            }
            for row in self.latest.get(kind, ())
        ]  # fmt: skip
        return [*found, *({} for _blank in range(BLANK_ROWS))]

    def entry(self) -> Entry:
        stores = {row["name"]: row for row in self.latest.get("shared", ()) if "amount_per_month" not in row}
        idle = [
            {**{name: row.cleaned_data[name] for name in ("cluster", "accelerator")},
             "price_per_gpu_hour": _plain(row.cleaned_data["price_per_gpu_hour"]), **row.split}
            for row in self.idle
        ]  # fmt: skip
        return {"idle": idle, "shared": [self._cost(row, stores) for row in self.shared]}

    @staticmethod
    def _cost(row: SharedRow, stores: Mapping[str, Entry]) -> Entry:
        facts = row.cleaned_data
        kept = stores.get(facts["cost"], {}) if facts["amount_per_month"] is None else {}
        amount = {} if facts["amount_per_month"] is None else {"amount_per_month": _plain(facts["amount_per_month"])}
        return {**kept, "name": facts["cost"], **amount, **row.split}


class CarbonForm(PolicyForm):
    """Form of kilograms of CO2 per kWh at a cluster: a known factor by region and year, or the figures with their source."""

    section = "carbon"
    name = Line(label=_("Cluster"), max_length=MAX_NAME_BYTES)
    region = Line(label=_("Region"), max_length=32, required=False, widget=forms.TextInput(attrs={"placeholder": "CN-East"}))
    year = forms.IntegerField(label=_("Year"), required=False, min_value=2000, max_value=2199)
    location_kg_per_kwh = Number(label=_("Or kg CO2 per kWh, by location"), required=False, min_value=0, max_value=10)
    market_kg_per_kwh = Number(label=_("By contract"), required=False, min_value=0, max_value=10)
    source = Line(label=_("Source"), max_length=500, required=False)

    def shown(self) -> dict[str, Any]:
        """Return no initial values: each cluster has factors of its own."""
        return {}

    def clean(self) -> dict[str, Any]:
        """Check that either the region or the figures are given."""
        facts = self.cleaned_data
        by_region, by_figure = bool(facts.get("region")), facts.get("location_kg_per_kwh") is not None
        if by_region == by_figure:
            self.add_error("region", gettext("give the region with its year, or the figures with their source"))
        elif by_region and not facts.get("year"):
            self.add_error("year", gettext("is missing"))
        elif by_figure and not facts.get("source"):
            self.add_error("source", gettext("is missing"))
        return facts

    def text(self) -> str:
        """Return the section as `apply` takes it."""
        facts = self.cleaned_data
        names = ("region", "year", "location_kg_per_kwh", "market_kg_per_kwh", "source")
        begins = timezone.localtime(facts["valid_from"]).isoformat()
        asked = {name: _plain(facts[name]) for name in names if facts[name] not in (None, "")}
        return policies_text({self.section: [{"cluster": facts["name"], "valid_from": begins, **asked}]})


class PolicyTextForm(PageForm):
    """Form of the sections of policies and carbon factors as YAML, with every field that they may have."""

    text_of = Text(label=_("YAML"), max_length=MOST_BYTES, strip=False, widget=forms.Textarea(attrs={
        "rows": 8, "class": "mono", "spellcheck": "false",
    }))  # fmt: skip

    def __init__(self, data: Any = None, *, latest: Mapping[str, Any] | None = None) -> None:
        super().__init__(data, key="yaml")

    def text(self) -> str:
        """Return the text as it was typed."""
        text: str = self.cleaned_data["text_of"]
        return text


FORMS: Final[Mapping[str, type[Any]]] = {
    "efficiency": EfficiencyForm, "interruption": InterruptionForm, "allocation": AllocationForm, "carbon": CarbonForm,
    "billing": BillingForm, "yaml": PolicyTextForm,
}  # fmt: skip
# `yaml` is the last form and has no section of its own
SECTION_OF: Final = dict(zip(FORMS, SECTIONS, strict=False))


def _plain(value: Any) -> Any:
    """Return a figure as text with the digits that were typed; True, False and None unchanged."""
    return value if isinstance(value, bool) or value is None else str(value)
