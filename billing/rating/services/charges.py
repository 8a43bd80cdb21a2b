"""Writes of charges: once per close, from one assessment."""

from billing.rating.assessment import Assessment
from billing.rating.models import Charge as ChargeRow
from billing.rating.models import EfficiencyVerdict

BATCH = 5_000


def charges_write(*, assessment: Assessment, ordinal: int) -> None:
    """Store the charges and verdicts of a close, in the transaction that makes its drafts."""
    ChargeRow.objects.bulk_create(
        (
            ChargeRow(
                closing=ordinal, line_key=charge.key.digest(), team=charge.key.team, platform=charge.key.platform,
                kind=charge.key.kind, charge_period=charge.key.charge_period, correction=charge.key.correction,
                cluster=charge.key.cluster, namespace=charge.key.namespace, consumer=charge.key.consumer,
                accelerator=charge.key.accelerator, sku=charge.key.sku, token_class=charge.key.token_class,
                unit=charge.key.unit, usage_quantity=charge.usage_quantity, unit_price=charge.unit_price,
                price_version=charge.key.price_version, policy=charge.key.policy, reason=charge.key.reason,
                facility_kw=charge.facility_kw,
            )
            for charge in assessment.charges
        ),
        batch_size=BATCH,
    )  # fmt: skip
    EfficiencyVerdict.objects.bulk_create(
        (
            EfficiencyVerdict(
                closing=ordinal, team=verdict.team, cluster=verdict.cluster, namespace=verdict.namespace,
                job=verdict.job, job_key=verdict.job_key, policy=verdict.policy, gpu_seconds=verdict.gpu_seconds,
                minutes=verdict.minutes, coverage=verdict.coverage, mfu=verdict.mfu, hfu=verdict.hfu,
                multiplier=verdict.multiplier, reason=verdict.reason, workload_class=verdict.workload_class,
                shadow=verdict.shadow, effect=verdict.effect,
            )
            for verdict in assessment.verdicts
        ),
        batch_size=BATCH,
    )  # fmt: skip
