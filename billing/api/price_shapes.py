"""Serializers of price versions: answers for people and programs, and parts of the OpenAPI description."""

from datetime import datetime
from typing import Any

from rest_framework import serializers

from billing.api.invoices import PriceVersionSerializer
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.selectors import base_of, notice_of
from billing.rating.price_warnings import draft_warnings


class ListPartSerializer(serializers.Serializer[Any]):
    """Prices of a list as they are written."""

    gpu = serializers.ListField(
        child=serializers.DictField(), required=False,
        help_text="entries of accelerator and/or resource with one of price_per_gpu_hour, price_per_slice_hour, cost_sheet",
    )  # fmt: skip
    tokens = serializers.ListField(
        child=serializers.DictField(), required=False,
        help_text="entries of model with prices per 1M tokens by class (input, cache_read, cache_creation, output), "
        "or with a token cost_sheet; with up_to_tokens for prompts of up to so many input tokens, and one without it after "
        "them for all longer ones",
    )  # fmt: skip


class SheetSerializer(serializers.Serializer[Any]):
    """Cost sheet to store with the prices that are made from it."""

    name = serializers.CharField()
    sheet = serializers.DictField()


class DraftRequestSerializer(ListPartSerializer):
    """Draft as a client writes it; numbers are decimal strings or plain numbers."""

    name = serializers.CharField(max_length=200)
    valid_from = serializers.CharField(help_text="RFC 3339 with an offset, or a date: midnight in the billing zone")
    reason = serializers.CharField(required=False, allow_blank=True, help_text="why prices change; needed to submit")
    based_on = serializers.CharField(
        required=False, max_length=200, help_text="published list that it was begun from; default: the one that it follows"
    )
    cost_sheets = SheetSerializer(many=True, required=False)
    token_cost_sheets = SheetSerializer(many=True, required=False)


class DraftChangeSerializer(DraftRequestSerializer):
    """Changes of a draft; omitted fields stay."""

    name = serializers.CharField(max_length=200, required=False)
    valid_from = serializers.CharField(required=False)
    revision = serializers.IntegerField(required=False, help_text="the revision that was read; refused if it is older")


class StepRequestSerializer(serializers.Serializer[Any]):
    """Body of submit, approve, reject and withdraw; may be empty if no reason is required."""

    reason = serializers.CharField(required=False, allow_blank=True)
    revision = serializers.IntegerField(required=False, help_text="the revision that was read; refused if it is older")


class StepSerializer(serializers.Serializer[Any]):
    """One step of the history of a draft."""

    at = serializers.DateTimeField()
    actor = serializers.CharField()
    action = serializers.CharField()
    revision = serializers.IntegerField()
    reason = serializers.CharField(source="comment")


class DraftSerializer(serializers.ModelSerializer[PriceDraft]):
    """Draft with its history; once approved it names the version that it became."""

    gpu = serializers.ListField(child=serializers.DictField(), source="content.gpu")
    tokens = serializers.ListField(child=serializers.DictField(), source="content.tokens")
    name = serializers.CharField()
    currency = serializers.CharField()
    valid_from = serializers.DateTimeField()
    created_by = serializers.CharField()
    submitted_by = serializers.CharField()
    submitted_at = serializers.DateTimeField(allow_null=True)
    decided_by = serializers.CharField()
    decided_at = serializers.DateTimeField(allow_null=True)
    decision_reason = serializers.CharField(source="decision")
    version = serializers.CharField(source="version.name", default=None)
    notice_business_days = serializers.SerializerMethodField()
    steps = StepSerializer(many=True)
    based_on = serializers.SerializerMethodField()
    warnings = serializers.SerializerMethodField()

    class Meta:
        model = PriceDraft
        fields = (
            "name", "state", "revision", "currency", "valid_from", "notice_business_days", "reason", "gpu", "tokens",
            "makers", "created_by", "created_at", "submitted_by", "submitted_at", "sha256", "decided_by", "decided_at",
            "decision_reason", "version", "steps", "based_on", "warnings",
        )  # fmt: skip

    def get_notice_business_days(self, draft: PriceDraft) -> int:
        now: datetime = self.context["now"]
        return notice_of(draft, now)

    def get_based_on(self, draft: PriceDraft) -> str | None:
        base = base_of(draft)
        return base.name if base else None

    def get_warnings(self, draft: PriceDraft) -> list[str]:
        """Return the warnings before publication: usage that the draft reprices, and prices that it takes back."""
        return [str(warning) for warning in draft_warnings(draft, self.context["now"]).values()]


class PublishedSerializer(PriceVersionSerializer):
    """Published version with its makers and approver."""

    state = serializers.SerializerMethodField()
    makers = serializers.SerializerMethodField()
    approved_by = serializers.CharField(source="published_by")

    class Meta(PriceVersionSerializer.Meta):
        fields = (*PriceVersionSerializer.Meta.fields, "state", "makers", "approved_by", "published_at")

    def get_state(self, version: PriceVersion) -> str:
        return "published"

    def get_makers(self, version: PriceVersion) -> list[str]:
        draft = getattr(version, "draft", None)
        return draft.makers if draft else [version.published_by]


class PriceChangeSerializer(serializers.Serializer[Any]):
    """One price in two lists."""

    kind = serializers.CharField()
    sku = serializers.CharField()
    accelerator = serializers.CharField(allow_null=True)
    token_class = serializers.CharField(allow_null=True)
    unit = serializers.CharField()
    old = serializers.CharField(allow_null=True)
    new = serializers.CharField(allow_null=True)
    change = serializers.ChoiceField(["added", "removed", "raised", "lowered", "same"])
    percent = serializers.CharField(allow_null=True)


class DiffSerializer(serializers.Serializer[Any]):
    """Comparison of two lists, price by price."""

    old = serializers.CharField()
    new = serializers.CharField()
    prices = PriceChangeSerializer(many=True)


class EffectSumSerializer(serializers.Serializer[Any]):
    """Amounts before and after; null if a price is missing; percent also if nothing was charged before."""

    before = serializers.CharField()
    after = serializers.CharField(allow_null=True)
    difference = serializers.CharField(allow_null=True)
    percent = serializers.CharField(allow_null=True)


class EffectTeamSerializer(EffectSumSerializer):
    """Effect on one team."""

    team = serializers.CharField()


class EffectSkuSerializer(EffectSumSerializer):
    """Effect on one SKU over all teams."""

    kind = serializers.CharField()
    sku = serializers.CharField()
    token_class = serializers.CharField(allow_null=True)


class EffectRowSerializer(EffectSkuSerializer):
    """Effect on one SKU of one team."""

    team = serializers.CharField()


class UnpricedSerializer(serializers.Serializer[Any]):
    """Usage without a price in a list."""

    sku = serializers.CharField()
    quantity = serializers.CharField()
    unit = serializers.CharField()


class UnratedTeamSerializer(serializers.Serializer[Any]):
    """Team that cannot be rated, and the error."""

    team = serializers.CharField()
    problem = serializers.CharField()


class EffectSerializer(serializers.Serializer[Any]):
    """Effect of a list on a past month."""

    name = serializers.CharField()
    month = serializers.CharField()
    currency = serializers.CharField()
    total = EffectSumSerializer()
    teams = EffectTeamSerializer(many=True)
    skus = EffectSkuSerializer(many=True)
    rows = EffectRowSerializer(many=True)
    unpriced_before = UnpricedSerializer(many=True)
    unpriced_after = UnpricedSerializer(many=True)
    unrated = UnratedTeamSerializer(many=True)
