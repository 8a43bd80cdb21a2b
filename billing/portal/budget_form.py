"""Forms of budgets: a new budget with its plan, and the changes that a budget's page offers."""

import re
from datetime import date
from decimal import Decimal
from typing import Any, Final

import msgspec
from django import forms
from django.db.models import QuerySet
from django.http import QueryDict
from django.utils import timezone
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from billing.budgets.labels import BUDGET_PERIOD, FEEDBACK
from billing.budgets.models import LONGEST_PATTERN, Budget
from billing.budgets.services.budgets import MOST_PERCENT, THRESHOLDS, BudgetWish, loosens
from billing.budgets.services.changes import wish_of
from billing.portal.forms import YEARS, Line, Midnight, Moment, Number, PageForm, RowForm, RowsForm, TeamChoice, Text
from billing.runtime.canonical_json import canonical_json
from billing.tenancy.models import Team
from metering.intervals import MONTH
from pricing.number_text import grouped_amount

LONGEST_NAME = 200
MOST_AMOUNT = Decimal(10**12)
PLAN_ROWS = 12
AMOUNT: Final = re.compile(r"([0-9]{1,3}(,[0-9]{3})+|[0-9]+)(\.[0-9]{1,2})?")


class Amount(forms.CharField):
    """Field for a planned amount of money, with or without thousands separators."""

    widget = forms.TextInput(attrs={"inputmode": "decimal"})

    def to_python(self, value: Any) -> Any:
        text = str(value or "").strip()
        # 0 is refused below, and so is any text that is no amount
        amount = Decimal(text.replace(",", "")) if AMOUNT.fullmatch(text) else Decimal(0)
        if text and not 0 < amount <= MOST_AMOUNT:
            raise forms.ValidationError(amount_rule())
        return amount if text else None


def amount_rule() -> str:
    rule = gettext("must be an amount from 0.01 to %(most)s with at most 2 decimals, such as 100,000.00")
    return rule % {"most": f"{MOST_AMOUNT:,}"}


class Percents(forms.CharField):
    """Field for a list of whole percents, with any separators."""

    def __init__(self, *, label: Any, example: str) -> None:
        widget = forms.TextInput(attrs={"inputmode": "numeric", "maxlength": LONGEST_NAME, "placeholder": example})
        super().__init__(label=label, required=False, widget=widget)

    def prepare_value(self, value: Any) -> Any:
        return value if isinstance(value, str) else ", ".join(map(str, value or ()))

    def to_python(self, value: Any) -> Any:
        words = [word for word in re.split(r"[\s,;，、；%]+", str(value or "")) if word]
        plain = all(word.isdecimal() and len(word) <= len(str(MOST_PERCENT)) for word in words)
        # 0 is refused below, and so is any word that is no number
        percents = sorted({int(word) for word in words}) if plain else [0]
        if any(not 1 <= percent <= MOST_PERCENT for percent in percents):
            raise forms.ValidationError(gettext("must be whole percents from 1 to %(most)s") % {"most": MOST_PERCENT})
        return tuple(percents)


class ThresholdsForm(PageForm):
    """Form of the percentages at which alerts are sent."""

    thresholds = Percents(label=_("Percent of spending"), example="50, 80, 100")
    forecast_thresholds = Percents(label=_("Percent of the forecast"), example="100")
    commitment_thresholds = Percents(label=_("Percent of spending with running jobs"), example="100")


class RecipientsForm(PageForm):
    recipients = Text(
        label=_("One mail address or channel per line"), required=False, widget=forms.Textarea(attrs={"rows": 4})
    )

    def clean_recipients(self) -> list[str]:
        """Return the recipients, one per line."""
        return [line.strip() for line in self.cleaned_data["recipients"].splitlines() if line.strip()]


class MuteForm(PageForm):
    """Form that mutes alerts until an instant, with a reason."""

    until = Moment(label=_("Hold back alerts until"))
    reason = Text(label=_("Reason"), max_length=500)


class OverrideForm(PageForm):
    """Form of a cap override: the amount above the cap, its end and its reason."""

    amount = Number(label=_("Amount above the cap"))
    until = Moment(label=_("Until"))
    reason = Text(label=_("Reason"), max_length=500)


class ChangeForm(RowsForm):
    """Form that changes a budget's name, amount or end after a preview; `looked` is the change that was previewed."""

    name = Line(label=_("Name"), max_length=LONGEST_NAME, required=False)
    amount = Amount(label=_("Amount"), required=False)
    valid_until = Midnight(label=_("End date (exclusive)"), required=False, help_text=_("may stay empty"))
    reason = Text(label=_("Reason"), max_length=500, required=False, help_text=_("where a second person agrees"))
    looked = Text(required=False, max_length=100_000, widget=forms.HiddenInput)

    def __init__(self, data: Any = None, *, budget: Budget, currency: str) -> None:
        end = budget.valid_until and timezone.localtime(budget.valid_until).date()
        facts = {"name": budget.name, "amount": grouped_amount(budget.amount), "valid_until": end}
        super().__init__(data, key="change", initial=facts)
        self.budget, self.fields["amount"].help_text = budget, currency
        plan = {row.month: row.amount for row in budget.plan.all()}
        if plan:
            del self.fields["amount"]
            amounts = [{"plan_month": month, "plan_amount": grouped_amount(amount)} for month, amount in plan.items()]
            self.rows = PlanRow.table(data, amounts)

    def clean(self) -> dict[str, Any]:
        until, since = self.cleaned_data.get("valid_until"), self.budget.valid_from
        if until and timezone.localtime(until).date() == self.initial["valid_until"]:
            until = self.cleaned_data["valid_until"] = self.budget.valid_until  # the stored end may lie within that day
        if since and until and until <= since:
            begins = {"start": timezone.localtime(since).date().isoformat()}
            self.add_error("valid_until", gettext("must come after %(start)s, on which the budget begins") % begins)
        self._clean_amounts()
        if not self.errors and loosens(self.budget, self.wish) and not self.cleaned_data["reason"]:
            self.add_error("reason", gettext("is missing: another person agrees that this budget allows more"))
        return self.cleaned_data

    def _clean_amounts(self) -> None:
        if "amount" in self.fields and "amount" not in self.errors and self.cleaned_data.get("amount") is None:
            self.add_error("amount", amount_rule())
        if self.budget.plan.all() and not any(row.is_valid() and row.cleaned_data["plan_amount"] for row in self.rows):
            self.add_error(None, gettext("at least one month needs its amount"))

    @property
    def seen(self) -> str:
        """Return the change that is previewed before it is saved, as canonical JSON."""
        return canonical_json({"wish": msgspec.to_builtins(self.wish), "reason": self.cleaned_data["reason"]})

    @property
    def wish(self) -> BudgetWish:
        facts = {name: self.cleaned_data[name] for name in ("name", "amount", "valid_until") if name in self.cleaned_data}
        rows = [row.cleaned_data for row in self.rows if row.is_valid() and row.cleaned_data["plan_amount"]]
        plan = {row["plan_month"]: row["plan_amount"] for row in rows}
        return wish_of(self.budget, **facts, **({"plan": plan} if plan else {}))


class FeedbackForm(PageForm):
    """Form of the feedback on an unusual day; each answer is a button of its own."""

    note = Text(label=_("Note"), max_length=500, required=False, widget=forms.TextInput(attrs={"placeholder": _("Note")}))
    feedback = forms.ChoiceField(choices=list(FEEDBACK.items()))


class TeamOrGroup(TeamChoice):
    """Choice of a team or a group, by code and name."""

    def label_from_instance(self, obj: Any) -> str:
        name = f"{obj.code} · {obj.name}" if obj.name and obj.name != obj.code else obj.code
        return f"{name} ({gettext('group')})" if obj.is_group else name


class PlanRow(RowForm):
    """Row for the amount of one month of a plan; a row without an amount is ignored."""

    plan_month = Text(label=_("Month"), widget=forms.TextInput(attrs={"placeholder": "2026-10"}))
    plan_amount = Amount(label=_("Amount"))

    def __init__(self, data: Any = None, *, number: int = 0, initial: Any = None) -> None:
        super().__init__(data, number=number, initial=initial)
        self.fields["plan_amount"].widget.attrs["class"] = "n"

    def name_of(self, field: str) -> str:
        """Return the month as the name of a refused amount."""
        month = self["plan_month"].value() if field == "plan_amount" else None
        return str(month or super().name_of(field))

    def clean(self) -> dict[str, Any]:
        month = self.cleaned_data["plan_month"]
        if self.cleaned_data.get("plan_amount") and not (MONTH.match(month) and int(month[:4]) in YEARS):
            self.add_error("plan_month", gettext("must be a month such as 2026-10"))
        return self.cleaned_data


def _pattern(label: Any, example: str) -> Line:
    widget = forms.TextInput(attrs={"placeholder": example})
    return Line(label=label, max_length=LONGEST_PATTERN, required=False, widget=widget)


class BudgetForm(RowsForm, ThresholdsForm):
    """Form of a new budget: its scope, its amount or the amounts of its plan, its time and its thresholds."""

    team = TeamOrGroup(Team.objects.order_by("-is_group", "code"), label=_("Team or group"), empty_label=_("choose"))
    name = Line(label=_("Name"), max_length=LONGEST_NAME, required=False)
    owner = Line(label=_("Owner"), max_length=LONGEST_NAME, required=False)
    cluster = _pattern(_("Cluster"), "hq-*")
    namespace = _pattern(_("Namespace"), "nlp-*")
    consumer = _pattern(_("Consumer"), "nlp-key-*")
    accelerator = _pattern(_("Accelerator or slice"), "NVIDIA-H800")
    model = _pattern(_("Model"), "llama-4-*")
    period = forms.ChoiceField(
        label=_("Period"), choices=list(BUDGET_PERIOD.items()), initial=Budget.Period.MONTH,
        error_messages={"invalid_choice": _("must be month, quarter or plan")},
    )  # fmt: skip
    amount = Amount(label=_("Amount"), required=False)
    valid_from = Midnight(label=_("From"), required=False, help_text=_("may stay empty; its first period counts whole"))
    valid_until = Midnight(label=_("End date (exclusive)"), required=False, help_text=_("may stay empty"))
    plan = forms.Field(label=_("Amounts by month"), required=False)

    def __init__(self, data: QueryDict | None = None, *, teams: QuerySet[Team], currency: str, today: date) -> None:
        super().__init__(data, initial=THRESHOLDS)
        choice: Any = self.fields["team"]
        choice.queryset = teams.order_by("-is_group", "code")
        self.fields["amount"].help_text = currency
        self.fields["amount"].widget.attrs["placeholder"] = "100,000.00"
        months = [divmod(today.year * 12 + today.month - 1 + ahead, 12) for ahead in range(PLAN_ROWS)]
        self.rows = PlanRow.table(data, ({"plan_month": f"{year}-{month + 1:02d}"} for year, month in months))

    def clean(self) -> dict[str, Any]:
        """Check fields that depend on each other; the clean fields are those of a `BudgetWish`, with the team."""
        wish = self.cleaned_data
        if wish.get("accelerator") and wish.get("model"):
            self.add_error("model", gettext("is given beside an accelerator, and no usage has both: give one of them"))
        since, until = wish.get("valid_from"), wish.get("valid_until")
        if since and until and until <= since:
            begins = {"start": self["valid_from"].value()}
            self.add_error("valid_until", gettext("must come after %(start)s, on which the budget begins") % begins)
        if wish.get("period") == Budget.Period.PLAN:
            self._clean_plan(wish)
        else:
            self._clean_amount(wish)
        return wish

    def _clean_amount(self, wish: dict[str, Any]) -> None:
        wish["plan"] = {}
        if "amount" in wish and wish["amount"] is None:
            self.add_error("amount", amount_rule())
        for row in self.rows:
            if row.is_valid() and row.cleaned_data["plan_amount"]:
                row.add_error("plan_amount", gettext("must be left out: only a plan has amounts by month"))

    def _clean_plan(self, wish: dict[str, Any]) -> None:
        if wish.get("amount"):
            self.add_error("amount", gettext("must be left out: the amount of a plan is the sum of its months"))
        rows = [row for row in self.rows if row["plan_amount"].value()]
        if not rows:
            self.add_error("plan", gettext("at least one month needs its amount"))
        plan: dict[str, Decimal] = {}
        for row in rows:
            if not row.is_valid():
                continue
            month = row.cleaned_data["plan_month"]
            if month in plan:
                row.add_error("plan_month", gettext("is there twice"))
            plan[month] = row.cleaned_data["plan_amount"]
        wish["plan"], wish["amount"] = plan, sum(plan.values(), Decimal(0))
