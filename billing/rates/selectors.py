"""All reads of prices and policies, as the plain values that rating works with."""

from datetime import datetime

from billing.rates.models import EfficiencyPolicy as PolicyRow
from billing.rates.models import PriceVersion as VersionRow
from pricing.efficiency import EfficiencyPolicy
from pricing.rate_card import GpuPrice, PriceVersion, RateCard


def rate_card() -> RateCard:
    """Every published price, dated."""
    rows = VersionRow.objects.filter(sealed=True).prefetch_related("gpu", "tokens")
    return RateCard(_version(row) for row in rows)


def _version(row: VersionRow) -> PriceVersion:
    return PriceVersion(
        name=row.name,
        valid_from=row.valid_from,
        valid_until=row.valid_until,
        gpu=tuple(
            GpuPrice(price.price, price.accelerator, price.resource, price.unit, price.facility_kw)
            for price in row.gpu.all()
        ),
        tokens={(price.model, price.token_class): price.price for price in row.tokens.all()},
    )


def policy_at(instant: datetime) -> EfficiencyPolicy | None:
    """The efficiency policy in force, or None: then nothing is adjusted."""
    row = PolicyRow.objects.filter(valid_from__lte=instant).order_by("-valid_from").first()
    if row is None or (row.valid_until is not None and row.valid_until <= instant):
        return None
    return EfficiencyPolicy(
        name=row.name, valid_from=row.valid_from, hfu_below=row.hfu_below, penalty=row.penalty,
        mfu_above=row.mfu_above, reward=row.reward, min_minutes=row.min_minutes, min_coverage=row.min_coverage,
    )  # fmt: skip


def policy_changes() -> set[datetime]:
    """Every instant at which another policy begins or one ends."""
    bounds = PolicyRow.objects.values_list("valid_from", "valid_until")
    return {at for pair in bounds for at in pair if at is not None}
