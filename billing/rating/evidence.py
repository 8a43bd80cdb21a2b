"""Evidence document of one efficiency verdict, which a team can check and a dispute can quote."""

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from typing import Any

from django.forms.models import model_to_dict
from msgspec import structs

from billing.rates.models import EfficiencyPolicy
from billing.rating.assessment import rate_period
from billing.rating.efficiency import Verdict
from billing.rating.models import EfficiencyVerdict
from billing.usage.scope import EpochFilter
from billing.usage.selectors import Sample, job_holds, last_close_seq, scored
from metering.intervals import Interval
from metering.peaks import dense_peak_tflops
from pricing.efficiency import Metric
from pricing.number_text import plain_text

SCHEMA = "suanpan/efficiency-evidence/1"
SAID = (
    "team", "cluster", "namespace", "job", "policy", "workload_class", "gpu_seconds", "minutes", "coverage", "mfu", "hfu",
    "multiplier", "reason", "shadow", "effect",
)  # fmt: skip


def verdicts_of(*, window: Interval, zone: str, close_seq: int | None, team: str) -> list[Verdict | EfficiencyVerdict]:
    """Return the verdicts on a team's jobs in a month, as close `close_seq` stored them or (None) as rated now."""
    if close_seq is None:
        found = rate_period(window=window, zone=zone, close_seq=None)
        return [verdict for verdict in found.verdicts if verdict.team == team]
    return list(EfficiencyVerdict.objects.filter(close_seq=close_seq, team=team).order_by("cluster", "namespace", "job"))


def find_verdict(
    verdicts: Iterable[Verdict | EfficiencyVerdict], *, cluster: str, namespace: str, job: str, policy: str
) -> Verdict | EfficiencyVerdict | None:
    """Return the verdict on a job under a policy, or None."""
    asked = (cluster, namespace, job, policy)
    return next((v for v in verdicts if (v.cluster, v.namespace, v.job, v.policy) == asked), None)


def evidence_of(verdict: Verdict | EfficiencyVerdict, *, window: Interval, close_seq: int | None) -> dict[str, Any]:
    """Return the verdict with its policy, samples and allocations, and a SHA-256 over the document.

    Evidence of a closed month contains exactly what its close knew, whatever came later.
    """
    epochs = EpochFilter(before=close_seq if close_seq is not None else last_close_seq() + 1)
    job = (verdict.cluster, verdict.namespace, verdict.job)
    policy = EfficiencyPolicy.objects.get(name=verdict.policy)
    samples = [s for s in scored(window, epochs.before).samples if (s.cluster, s.namespace, s.job) == job]
    fields = model_to_dict(policy, exclude=["id"])
    if fields["penalise_on"] == Metric.HFU:  # the default, added later: earlier evidence keeps its SHA-256
        del fields["penalise_on"]
    unrewarded = [code for code in policy.unrewarded if code == verdict.team]  # a team must not learn about others
    bundle = {
        "schema": SCHEMA,
        "window": {"start": window.start, "end": window.end},
        "verdict": {name: getattr(verdict, name) for name in SAID},
        "policy": {**fields, "unrewarded": unrewarded},
        "samples": [
            {**_sample_facts(sample), "dense_peak_tflops": dense_peak_tflops(sample.accelerator, sample.dtype)}
            for sample in sorted(samples, key=lambda sample: (sample.start, sample.end))
        ],
        "holds": [asdict(hold) for hold in job_holds(window, epochs, job)],
    }
    # hashed as JSON, so that a reader can compute the SHA-256 from the document
    document: dict[str, Any] = json.loads(json.dumps(bundle, default=_shown))
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return {**document, "sha256": sha256(text.encode()).hexdigest()}


def _sample_facts(sample: Sample) -> dict[str, Any]:
    """Return the fields of a sample without `pod`, a later field: evidence given before it keeps its SHA-256."""
    return {name: value for name, value in structs.asdict(sample).items() if name != "pod"}


def _shown(value: object) -> str:
    if isinstance(value, Decimal):
        return plain_text(value)
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return str(value)
