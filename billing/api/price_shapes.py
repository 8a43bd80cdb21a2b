"""The shapes of price versions: answers for people and programs, and the parts of the OpenAPI description."""

from datetime import datetime
from typing import Any

from rest_framework import serializers

from billing.api.invoices import PriceVersionSerializer
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.selectors import base_of, notice_of
from billing.rating.price_warnings import draft_warnings


class ListPartSerializer(serializers.Serializer[Any]):
    """The prices of a list as they are written."""

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
    """A cost sheet to store with the prices that are made from it."""

    name = serializers.CharField()
    sheet = serializers.DictField()


class DraftRequestSerializer(ListPartSerializer):
    """A draft as a client writes it; numbers are decimal strings or plain numbers."""

    name = serializers.CharField(max_length=200)
    valid_from = serializers.CharField(help_text="RFC 3339 with an offset, or a date: midnight in the billing zone")
    reason = serializers.CharField(required=False, allow_blank=True, help_text="why prices change; needed to submit")
    based_on = serializers.CharField(
        required=False, max_length=200, help_text="published list that it was begun from; default: the one that it follows"
    )
    cost_sheets = SheetSerializer(many=True, required=False)
    token_cost_sheets = SheetSerializer(many=True, required=False)


class DraftChangeSerializer(DraftRequestSerializer):
    """What is to change in a draft; what is left out stays."""

    name = serializers.CharField(max_length=200, required=False)
    valid_from = serializers.CharField(required=False)
    revision = serializers.IntegerField(required=False, help_text="the revision that was read; refused if it is older")


class StepRequestSerializer(serializers.Serializer[Any]):
    """Body of submit, approve, reject and withdraw; may be empty where no reason is asked for."""

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
    """A draft with its history; once approved it names the version that it became."""

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
        """What to know before it is published: usage that it prices anew, and prices that it takes back."""
        return [str(warning) for warning in draft_warnings(draft, self.context["now"]).values()]


class PublishedSerializer(PriceVersionSerializer):
    """A published version with who made and who approved it."""

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
    """Two lists, price by price."""

    old = serializers.CharField()
    new = serializers.CharField()
    prices = PriceChangeSerializer(many=True)


class EffectSumSerializer(serializers.Serializer[Any]):
    """Amounts before and after; null where a price is missing; percent also where nothing was."""

    before = serializers.CharField()
    after = serializers.CharField(allow_null=True)
    difference = serializers.CharField(allow_null=True)
    percent = serializers.CharField(allow_null=True)


class EffectTeamSerializer(EffectSumSerializer):
    """The effect on one team."""

    team = serializers.CharField()


class EffectSkuSerializer(EffectSumSerializer):
    """The effect on one SKU over all teams."""

    kind = serializers.CharField()
    sku = serializers.CharField()
    token_class = serializers.CharField(allow_null=True)


class EffectRowSerializer(EffectSkuSerializer):
    """The effect on one SKU of one team."""

    team = serializers.CharField()


class UnpricedSerializer(serializers.Serializer[Any]):
    """Usage that a list has no price for."""

    sku = serializers.CharField()
    quantity = serializers.CharField()
    unit = serializers.CharField()


class UnratedTeamSerializer(serializers.Serializer[Any]):
    """A team that cannot be rated, and what was raised."""

    team = serializers.CharField()
    problem = serializers.CharField()


class EffectSerializer(serializers.Serializer[Any]):
    """What a list would have done to a month."""

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
