"""Administration of price tables: all are read-only except drafts, which are written through the services.

Drafts are approved in the portal, which shows the effect on last month beside the button.
"""

from datetime import datetime
from typing import Any

from django import forms
from django.contrib import admin
from django.db import models
from django.http import HttpRequest
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from unfold.admin import ModelAdmin, TabularInline
from unfold.widgets import UnfoldAdminTextareaWidget

from billing.approvals.models import Step
from billing.rates.labels import POLICY_FORM, PRICE_DRAFT_ACTION, PRICE_DRAFT_STATE, TOKEN_METHOD, token_class_words
from billing.rates.models import (
    CostSheet,
    EfficiencyPolicy,
    GpuPrice,
    PriceDraft,
    PriceVersion,
    TokenCostSheet,
    TokenPrice,
)
from billing.rates.price_file import draft_document
from billing.rates.services import PriceDraftError, price_draft_write
from billing.tenancy.access import Right, access_of
from billing.tenancy.actors import actor_of
from billing.tenancy.selectors import NoSetupError, billing_setup
from pricing.documents import DocumentError, parse_yaml
from pricing.efficiency import Form

EXAMPLE = """name: 2027-01
valid_from: '2027-01-01T00:00:00+08:00'
reason: why prices change
gpu:
- accelerator: NVIDIA-H800
  price_per_gpu_hour: '12.0000'
tokens:
- model: llama-3-8b
  input: '2.0000'
  output: '8.0000'
"""


FACTS = (
    "name", "currency", "valid_from", "content", "reason", "revision", "stage", "made_by", "created_at", "submitted_by",
    "submitted_at", "sha256", "decided_by", "decided_at", "decision",
)  # fmt: skip


def fact(name: str, words: Any) -> Any:
    """Return a display method of a draft's fact that is no field of its table, with the heading `words`."""

    @admin.display(description=words)
    def show(_admin: ModelAdmin, draft: PriceDraft) -> Any:
        found = getattr(draft, name)
        return date_format(timezone.localtime(found), "DATETIME_FORMAT") if isinstance(found, datetime) else found or None

    return show


class ReadOnly:
    """Read-only permissions: visible to people who may see costs, without changes or deletions."""

    def has_view_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return access_of(request.user).may(Right.READ_COSTS)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


class GpuPrices(ReadOnly, TabularInline):
    model = GpuPrice
    hide_title = True
    fields = readonly_fields = ("accelerator", "resource", "sold_by", "price", "cost_sheet", "facility_kw")

    @admin.display(description=_("Unit"))
    def sold_by(self, row: GpuPrice) -> str:
        return row.unit


class TokenPrices(ReadOnly, TabularInline):
    model = TokenPrice
    hide_title = True
    fields = readonly_fields = ("model", "token_class_words", "price", "cost_sheet")

    @admin.display(description=_("Token class"))
    def token_class_words(self, row: TokenPrice) -> Any:
        return token_class_words(row.token_class)


class Steps(ReadOnly, TabularInline):
    model = Step
    hide_title = True
    fields = readonly_fields = ("at", "actor", "done", "revision", "comment")

    @admin.display(description=_("Action"))
    def done(self, step: Step) -> Any:
        return PRICE_DRAFT_ACTION[Step.Action(step.action)]


@admin.register(PriceVersion)
class PriceVersionAdmin(ReadOnly, ModelAdmin):
    list_display = ("name", "currency", "valid_from", "valid_until", "published_by", "published_at")
    search_fields = ("name",)
    inlines = [GpuPrices, TokenPrices]


@admin.register(CostSheet)
class CostSheetAdmin(ReadOnly, ModelAdmin):
    search_fields = ("name",)


@admin.register(TokenCostSheet)
class TokenCostSheetAdmin(ReadOnly, ModelAdmin):
    list_display = ("name", "model", "accelerator", "engine", "precision", "split_by")
    fields = ("name", "model", "accelerator", "gpus", "engine", "precision", "split_by", "inputs", "result")
    search_fields = ("name", "model")

    @admin.display(description=_("Method"), ordering="method")
    def split_by(self, sheet: TokenCostSheet) -> Any:
        return TOKEN_METHOD[sheet.method]


@admin.register(EfficiencyPolicy)
class EfficiencyPolicyAdmin(ReadOnly, ModelAdmin):
    list_display = ("name", "valid_from", "valid_until")
    fields = (
        "name", "valid_from", "valid_until", "measured_by", "hfu_below", "penalty", "mfu_above", "reward", "min_minutes",
        "min_coverage", "min_gpu_seconds", "grows", "width", "shadow", "classes", "unrewarded", "gather_short",
        "neutral_pool",
    )  # fmt: skip
    search_fields = ("name",)

    @admin.display(description=_("Measured by"))
    def measured_by(self, policy: EfficiencyPolicy) -> str:
        return policy.penalise_on.upper()

    @admin.display(description=_("Form"))
    def grows(self, policy: EfficiencyPolicy) -> Any:
        return POLICY_FORM[Form(policy.form)]


class DraftForm(forms.ModelForm):
    """Draft form with one YAML document, validated and stored by the service in the request's transaction."""

    document = forms.CharField(
        label=_("Price list"), strip=False,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 28, "class": "font-mono", "spellcheck": "false"}),
        help_text=_(
            "<code>name</code>, <code>valid_from</code>, <code>reason</code>, <code>gpu</code> and <code>tokens</code>, as "
            "under <code>price_versions:</code> of the set-up file; <code>cost_sheets</code> and "
            "<code>token_cost_sheets</code> may come with it"
        ),
    )  # fmt: skip
    revision = forms.IntegerField(label=_("Revision"), widget=forms.HiddenInput, required=False)
    actor: str

    class Meta:
        model = PriceDraft
        fields: tuple[str, ...] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        known = self.instance.pk is not None
        self.initial["document"] = draft_document(self.instance, billing_setup().zone) if known else EXAMPLE
        self.initial["revision"] = self.instance.revision if known else None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if "document" not in cleaned:
            return cleaned
        try:
            # the service validates and stores in one step
            fields = parse_yaml(cleaned["document"], "document")
            self.stored = price_draft_write(
                fields=fields, actor=self.actor, now=timezone.now(), revision=cleaned.get("revision"),
                draft=self.instance if self.instance.pk else None,
            )  # fmt: skip
        except DocumentError as error:
            self.add_error("document", str(error))
        except PriceDraftError as error:
            for problem in error.problems:
                self.add_error("document", str(problem))
        return cleaned

    def save(self, commit: bool = True) -> PriceDraft:
        """Return the draft that the service stored in `clean`."""
        return self.stored

    def save_m2m(self) -> None:
        """Skip the call of the admin after `save`: everything is stored."""


class StateFilter(admin.SimpleListFilter):
    """Filter of drafts by state, with the portal's display names."""

    title, parameter_name = _("State"), "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [(state.value, words) for state, words in PRICE_DRAFT_STATE.items()]

    def queryset(self, request: HttpRequest, queryset: models.QuerySet[PriceDraft]) -> models.QuerySet[PriceDraft]:
        return queryset.filter(state=self.value()) if self.value() else queryset


@admin.register(PriceDraft)
class PriceDraftAdmin(ReadOnly, ModelAdmin):
    """Price drafts, edited as a document; approved and withdrawn ones are read-only."""

    form = DraftForm
    list_display = ("name", "stage", "valid_from", "made_by", "submitted_by", "decided_by")
    list_filter = (StateFilter,)
    search_fields = ("subject", "reason")
    inlines = [Steps]
    name, currency = fact("name", _("Name")), fact("currency", _("Currency"))
    valid_from = fact("valid_from", _("Valid from"))
    submitted_by, submitted_at = fact("submitted_by", _("Submitted by")), fact("submitted_at", _("Submitted at"))
    decided_by, decided_at = fact("decided_by", _("Decided by")), fact("decided_at", _("Decided at"))
    decision = fact("decision", _("Decision"))

    @admin.display(description=_("State"), ordering="state")
    def stage(self, draft: PriceDraft) -> Any:
        return PRICE_DRAFT_STATE[PriceDraft.State(draft.state)]

    @admin.display(description=_("Price list"))
    def content(self, draft: PriceDraft) -> str:
        return format_html('<pre class="whitespace-pre-wrap">{}</pre>', draft_document(draft, billing_setup().zone))

    @admin.display(description=_("Made by"))
    def made_by(self, draft: PriceDraft) -> str:
        return ", ".join(draft.makers)

    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return access_of(request.user).may(Right.EDIT_PRICES) and _is_set_up()

    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        final = isinstance(obj, PriceDraft) and obj.state in (PriceDraft.State.APPROVED, PriceDraft.State.WITHDRAWN)
        return access_of(request.user).may(Right.EDIT_PRICES) and not final

    def get_fields(self, request: HttpRequest, obj: PriceDraft | None = None) -> Any:
        """Return the document field, or every fact of a read-only draft."""
        if self.has_change_permission(request, obj):
            return ("document", "revision")
        return FACTS

    def get_form(self, request: HttpRequest, obj: PriceDraft | None = None, change: bool = False, **kwargs: Any) -> Any:
        """Return the form class with the actor of the request."""
        if not self.has_change_permission(request, obj):
            return super().get_form(request, obj, change, **{**kwargs, "form": forms.ModelForm})
        # a class per request: Django instantiates the form without the actor
        return type("DraftFormOfActor", (DraftForm,), {"actor": actor_of(request)})

    def save_model(self, request: HttpRequest, obj: PriceDraft, form: Any, change: bool) -> None:
        """Skip the admin's save: the service has stored the draft."""


def _is_set_up() -> bool:
    try:
        billing_setup()
    except NoSetupError:
        return False
    return True
