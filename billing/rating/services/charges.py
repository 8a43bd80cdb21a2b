"""Writes of charges: once per close, from one assessment."""

from dataclasses import asdict
from operator import attrgetter
from typing import Any, Final

from billing.rating.allocation import capacity_of
from billing.rating.assessment import RatingResult
from billing.rating.models import Charge as ChargeRow
from billing.rating.models import EfficiencyVerdict, IdleShare, PoolCapacity, PoolTime
from billing.runtime.bulk_copy import rows_copy
from metering.intervals import Interval
from pricing.rating import Charge, LineKey

KEY: Final = LineKey.__struct_fields__
CHARGE: Final = ("close_seq", "line_key", *KEY, "usage_quantity", "unit_price", "facility_kw")
VERDICT: Final = (
    "team", "cluster", "namespace", "job", "policy", "gpu_seconds", "minutes", "coverage", "mfu", "hfu", "multiplier",
    "reason", "workload_class", "shadow", "effect",
)  # fmt: skip
_fields: Final = attrgetter(*VERDICT)


def charges_write(*, assessment: RatingResult, close_seq: int) -> None:
    """Store the charges and verdicts of a close, in the transaction that makes its drafts."""
    rows_copy(ChargeRow, CHARGE, (_charge(close_seq, charge) for charge in assessment.charges))
    verdicts = ((close_seq, verdict.job_key, *_fields(verdict)) for verdict in assessment.verdicts)
    rows_copy(EfficiencyVerdict, ("close_seq", "job_key", *VERDICT), verdicts)


def idle_shares_write(*, assessment: RatingResult, close_seq: int) -> None:
    """Store each team's part of each pool's idle time, once per close."""
    IdleShare.objects.bulk_create(
        IdleShare(
            close_seq=close_seq, team=team, cluster=pool.cluster, accelerator=pool.accelerator, pool_idle_us=pool.idle_us,
            idle_us=share,
        )
        for pool in assessment.pools
        for team, share in pool.shares.items()
    )  # fmt: skip


def pool_times_write(*, assessment: RatingResult, close_seq: int) -> None:
    """Store the time of each pool by outcome, at the end of a close."""
    PoolTime.objects.bulk_create(
        PoolTime(close_seq=close_seq, cluster=cluster, accelerator=accelerator, **asdict(time))
        for (cluster, accelerator), time in sorted(assessment.device_time.items())
    )


def _charge(close_seq: int, charge: Charge) -> tuple[Any, ...]:
    key = charge.key
    return (close_seq, key.digest(), *key.order, charge.usage_quantity, charge.unit_price, charge.facility_kw)


def capacity_freeze(*, window: Interval, close_seq: int) -> None:
    """Store the capacity of pools in the transaction that cuts the month off: later reports do not change this close."""
    PoolCapacity.objects.bulk_create(
        PoolCapacity(close_seq=close_seq, cluster=cluster, accelerator=accelerator, capacity_us=capacity)
        for (cluster, accelerator), capacity in sorted(capacity_of(window, None).items())
    )
