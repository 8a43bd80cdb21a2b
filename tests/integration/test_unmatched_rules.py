"""What was in force and matched nothing of a month is named in its report, and holds nothing."""

from pathlib import Path

import pytest

from billing.closing.report import build_report
from billing.invoices.services.periods import period_open
from tests.factories import (
    SET_UP,
    allocation_record,
    apply,
    ingest_allocations,
    ingest_tokens,
    person,
    signed_in,
    token_record,
)
from tests.factories.corrections import bill as close
from tests.factories.months import OCTOBER_OVER
from tests.factories.usage import capacity, sample

pytestmark = pytest.mark.django_db

PRICES = SET_UP["price_versions"][0]
POLICIES = {
    "ownership": [*SET_UP["ownership"], {"cluster": "hq-1", "namespace": "nlp-trian", "team": "cv"},
                  {"cluster": "hq-1", "namespace": "old", "team": "cv", "valid_until": "2026-09-01"}],
    "consumers": [*SET_UP["consumers"], {"source": "litellm-hq", "consumer": "nlp-key-l", "team": "nlp"}],
    "price_versions": [{**PRICES, "tokens": [*PRICES["tokens"], {"model": "llama-3-8B", "input": "2.0000"}],
                        "gpu": [*PRICES["gpu"], {"accelerator": "NVIDIA-A100", "price_per_gpu_hour": "6.0000"}]}],
    "efficiency_policies": [
        {"name": "bands", "valid_from": "2026-10-01", "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50",
         "reward": "0.10", "classes": [{"name": "tuning", "queues": ["tune-*"], "penalty": "0"}]},
    ],
    "interruption_policies": [{"name": "ends", "valid_from": "2026-10-01", "preempted": "platform", "node_lost": "team"}],
    "commitments": [{"name": "cv-2026", "team": "cv", "accelerator": "NVIDIA-A100", "gpu_hours_per_month": "10",
                     "price_per_gpu_hour": "5.0000", "valid_from": "2026-10-01"}],
    "budgets": [{"team": "nlp", "period": "month", "amount": "1000.00", "name": "llama", "model": "llama-3-8B"},
                {"team": "nlp", "period": "month", "amount": "1000.00", "name": "all of nlp"}],
}  # fmt: skip
FOUND = [
    ("budgets", "llama"), ("commitments", "cv-2026"), ("consumers", "litellm-hq/nlp-key-l"),
    ("efficiency_policies", "bands: tuning"), ("interruption_policies", "ends: preempted"), ("ownership", "hq-1/cv"),
    ("ownership", "hq-1/nlp-trian"), ("ownership", "hq-1/serving"), ("price_versions", "NVIDIA-A100"),
    ("price_versions", "llama-3-8B"), ("price_versions", "nvidia.com/mig-1g.10gb"),
]  # fmt: skip


@pytest.fixture
def october(tmp_path: Path) -> None:
    apply(tmp_path, **POLICIES)
    ingest_allocations(allocation_record())
    ingest_tokens(token_record())
    sample("2026-10-10T00:00:00Z", "2026-10-10T02:37:13Z", "75464", "0.30", "0.40")


def found() -> list[tuple[str, str]]:
    report = build_report(period_open(month="2026-10"), now=OCTOBER_OVER)
    assert report.closable or report.status == "closed"
    return [(rule["kind"], rule["subject"]) for rule in report.as_dict()["unmatched_rules"]]


def test_every_rule_that_matched_nothing_is_named_and_holds_nothing(october: None) -> None:
    assert found() == FOUND
    close()
    assert found() == FOUND


def test_rules_that_match_are_not_named(october: None) -> None:
    ingest_allocations(
        allocation_record(2, namespace="cv", accelerator="NVIDIA-A100"), allocation_record(3, namespace="serving"),
        allocation_record(4, namespace="nlp-trian", queue="tune-1", resource="nvidia.com/mig-1g.10gb",
                          end_reason="preempted"),
    )  # fmt: skip
    sample("2026-10-10T00:00:00Z", "2026-10-10T02:37:13Z", "75464", "0.30", "0.40", "uid-4")
    ingest_tokens(token_record(2, model="llama-3-8B", consumer="nlp-key-l", cache_read_input_tokens=0, output_tokens=0,
                               reasoning_output_tokens=0))  # fmt: skip
    assert found() == []


def test_a_shared_cost_that_nobody_is_charged_is_named(tmp_path: Path) -> None:
    rule = {"name": "gateway", "amount_per_month": "1000.00", "method": "proportional"}
    apply(tmp_path, allocation_policies=[{"name": "flat", "valid_from": "2026-10-01", "shared": [rule]}])
    capacity()
    assert ("allocation_policies", "flat: gateway") in found()
    ingest_allocations(allocation_record())
    assert ("allocation_policies", "flat: gateway") not in found()


def test_the_page_of_the_month_shows_them(october: None) -> None:
    page = signed_in(person("li", "finance")).get("/close/?month=2026-10").content.decode()
    assert "Rules that matched nothing" in page
    assert "hq-1/nlp-trian" in page
