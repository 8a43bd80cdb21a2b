"""Forms of the section `billing:` of the set-up file: the start of an installation's billing, and later changes."""

import re
from collections.abc import Mapping
from typing import Any, Final
from zoneinfo import available_timezones

from django import forms
from django.utils.translation import gettext_lazy as _

from billing.portal.forms import Line, PageForm
from billing.setup.policies import policies_text
from billing.tenancy.services import ISSUER_FACTS

DAYS: Final = ("holidays", "working_days")
LONGEST_DAYS: Final = 10_000


def _optional(label: Any, name: str) -> Line:
    return Line(label=label, max_length=ISSUER_FACTS[name], required=False, help_text=_("optional"))


def _days(label: Any) -> Line:
    return Line(
        label=label, max_length=LONGEST_DAYS, required=False, help_text=_("optional"),
        widget=forms.TextInput(attrs={"placeholder": "2026-10-01, 2026-10-02"}),
    )  # fmt: skip


class SetupForm(PageForm):
    """Form of the billing set-up, with the fields that an installation cannot begin without."""

    currency = forms.RegexField(
        r"^[A-Z]{3}$", label=_("Currency"), initial="CNY", widget=forms.TextInput(attrs={"maxlength": 3}),
        error_messages={"invalid": _("an ISO 4217 code such as CNY"), "required": _("an ISO 4217 code such as CNY")},
    )  # fmt: skip
    zone = forms.CharField(label=_("Time zone of billing months"), initial="Asia/Shanghai")
    issuer = forms.RegexField(
        r"^\S{1,64}$", label=_("Issuer"), widget=forms.TextInput(attrs={"maxlength": 64, "placeholder": "AI-INFRA"}),
        error_messages={"invalid": _("a short name without blanks, which begins the number of every document")},
    )  # fmt: skip
    review = forms.ChoiceField(
        label=_("Review of drafts"), initial="none", error_messages={"invalid_choice": _("none or four-eyes")},
        choices=(("none", _("none: a clean close approves them")), ("four-eyes", _("four eyes: somebody else approves"))),
    )  # fmt: skip
    legal_entity = _optional(_("Legal entity"), "legal_entity")
    address = _optional(_("Address"), "address")
    tax_id = _optional(_("Tax ID"), "tax_id")
    contact = _optional(_("Contact"), "contact")

    def clean_zone(self) -> str:
        zone = str(self.cleaned_data["zone"])
        if zone not in available_timezones():
            raise forms.ValidationError(_("a time zone such as Asia/Shanghai"))
        return zone


class BillingForm(SetupForm):
    """Form of a change of the billing set-up, filled with the section as it is; issued documents stay as they are."""

    reopening = forms.ChoiceField(label=_("Reopening of months"), choices=(
        ("never", _("never: a closed month stays closed")), ("two-persons", _("two persons, while nothing is issued")),
    ))  # fmt: skip
    holidays = _days(_("Holidays beside weekends"))
    working_days = _days(_("Days of weekends that are worked"))
    gather_consumers_above = forms.IntegerField(
        label=_("Token lines per model, not per consumer, above this number of consumers"), min_value=1
    )
    cost_center_required = forms.BooleanField(
        label=_("A team that is charged without a cost centre blocks the close"), required=False
    )

    def __init__(self, data: Any = None, *, latest: Mapping[str, Any]) -> None:
        shown = {name: ", ".join(value) if name in DAYS else value for name, value in latest.items()}
        super().__init__(data, key="billing", initial=None if data is not None else shown)

    def text(self) -> str:
        """Return the section as `apply` takes it."""
        facts = {name: str(value) for name, value in self.cleaned_data.items()}
        days = {name: re.findall(r"[^\s,;]+", facts[name]) for name in DAYS}
        required = "true" if self.cleaned_data["cost_center_required"] else ""
        return policies_text({"billing": {**facts, **days, "cost_center_required": required}})
