"""What a platform's own runs have reached: the MFU that a plan is held against."""

from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from django.db import connection

LOOKED_BACK: Final = timedelta(days=180)
LEAST_COVERAGE: Final = Decimal("0.95")
LEAST_RUNS: Final = 10
LEAST_GPU_SECONDS: Final = 3600


def own_mfu_p90(accelerator: str, now: datetime) -> Decimal | None:
    """The MFU that nine in ten runs on `accelerator` of the last 180 days do not pass; None for fewer than ten runs.

    A run is a pod or workload with at least one GPU-hour measured; its MFU is weighted by GPU-seconds, and the
    percentile is the nearest rank.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """SELECT count(*), percentile_disc(0.9) WITHIN GROUP (ORDER BY done / weight)
               FROM (SELECT sum(s.mfu * s.gpu_seconds) AS done, sum(s.gpu_seconds) AS weight
                     FROM usage_efficiencysample s
                     WHERE s.start >= %(since)s AND s."end" <= %(now)s AND s.mfu IS NOT NULL AND s.coverage >= %(coverage)s
                           AND EXISTS (SELECT 1 FROM usage_gpuallocation a WHERE a.cluster = s.cluster
                                       AND a.pod_uid = s.pod_uid AND a.accelerator = %(accelerator)s)
                     GROUP BY s.cluster, s.pod_uid, s.workload) AS run
               WHERE weight >= %(least)s""",
            {
                "since": now - LOOKED_BACK, "now": now, "coverage": LEAST_COVERAGE, "accelerator": accelerator,
                "least": LEAST_GPU_SECONDS,
            },
        )  # fmt: skip
        runs, reached = cursor.fetchone()
    return reached if runs >= LEAST_RUNS else None
