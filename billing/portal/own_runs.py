"""What a platform's own runs have reached: the MFU that a plan is held against."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from django.db.models import Exists, F, OuterRef, Sum

from billing.usage.models import EfficiencySample, GpuAllocation

LOOKED_BACK: Final = timedelta(days=180)
LEAST_COVERAGE: Final = Decimal("0.95")
LEAST_RUNS: Final = 10
LEAST_GPU_SECONDS: Final = 3600


def own_mfu_p90(accelerator: str, now: datetime) -> Decimal | None:
    """The MFU that nine in ten runs on `accelerator` of the last 180 days do not pass; None for fewer than ten runs.

    A run is a pod or workload with at least one GPU-hour measured; its MFU is weighted by GPU-seconds, and the
    percentile is the nearest rank.
    """
    held = GpuAllocation.objects.filter(cluster=OuterRef("cluster"), pod_uid=OuterRef("pod_uid"), accelerator=accelerator)
    samples = EfficiencySample.objects.filter(
        Exists(held), start__gte=now - LOOKED_BACK, end__lte=now, mfu__isnull=False, coverage__gte=LEAST_COVERAGE
    )
    runs = (
        samples.values("cluster", "pod_uid", "workload")
        .annotate(weight=Sum("gpu_seconds"), done=Sum(F("mfu") * F("gpu_seconds")))
        .filter(weight__gte=LEAST_GPU_SECONDS)
        .values_list("done", "weight")
    )
    reached = sorted(done / weight for done, weight in runs)
    if len(reached) < LEAST_RUNS:
        return None
    rank = -(-len(reached) * 9 // 10)
    return reached[rank - 1]
