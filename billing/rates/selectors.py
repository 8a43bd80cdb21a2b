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


class PolicyBook:
    """All efficiency policies, dated; their ranges do not overlap."""

    def __init__(self) -> None:
        self._rows = list(PolicyRow.objects.all())

    def at(self, instant: datetime) -> EfficiencyPolicy | None:
        """The policy in force, or None: then nothing is adjusted."""
        for row in self._rows:
            if row.valid_from <= instant and (row.valid_until is None or instant < row.valid_until):
                return _policy(row)
        return None

    def changes(self) -> set[datetime]:
        """Every instant at which another policy begins or one ends."""
        return {at for row in self._rows for at in (row.valid_from, row.valid_until) if at is not None}


def _policy(row: PolicyRow) -> EfficiencyPolicy:
    return EfficiencyPolicy(
        name=row.name, valid_from=row.valid_from, hfu_below=row.hfu_below, penalty=row.penalty,
        mfu_above=row.mfu_above, reward=row.reward, min_minutes=row.min_minutes, min_coverage=row.min_coverage,
    )  # fmt: skip
