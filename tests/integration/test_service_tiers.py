"""Usage in a service tier that nothing prices stops the close, until a dated rule says what it is billed as."""

from pathlib import Path
from typing import Any

import pytest

from billing.closing.exceptions import ReportedException
from billing.closing.report import build_report
from billing.closing.services.closing import CloseRefusedError, period_close
from billing.closing.services.waivers import WaiverError, exception_waive
from billing.invoices.models import Invoice
from billing.invoices.selectors import period_of
from billing.setup.file import SetUpFileError
from billing.tenancy.models import AuditEntry
from billing.usage.models import ServiceTierRule
from tests.factories import AFTER, apply, ingest_tokens, money, token_record
from tests.factories.months import NOVEMBER_OVER

pytestmark = pytest.mark.django_db
FLEX = {"source": "litellm-hq", "service_tier": "flex", "treat_as": "standard", "valid_from": "2026-10-01"}


def tiers(month: str = "2026-10") -> list[tuple[Any, ...]]:
    found: list[ReportedException] = build_report(period_of(month), now=AFTER).exceptions
    return [
        (item.subject, int(item.quantity), item.unit, item.blocks, str(item.action))
        for item in found if item.kind == "service_tier"
    ]  # fmt: skip


def test_a_tier_without_a_price_stops_the_close_with_quantity_and_models(tmp_path: Path) -> None:
    """1,100 tokens of llama-3-8b twice and of qwen once in flex, once in batch; standard and unstated ones are no matter."""
    apply(tmp_path, price_versions=[priced("llama-3-8b", "qwen")])
    ingest_tokens(
        token_record(1, service_tier="flex"), token_record(2, service_tier="Flex"), token_record(3, service_tier="auto"),
        token_record(4), token_record(5, service_tier="flex", model="qwen"), token_record(6, service_tier="batch"),
        token_record(7, service_tier="flex", time="2026-11-01T00:00:00+08:00"),
    )  # fmt: skip
    said = "used by {}: say under `service_tiers:` what it is billed as"
    assert tiers() == [
        ("litellm-hq/batch", 1100, "tokens", True, said.format("llama-3-8b (1,100)")),
        ("litellm-hq/flex", 3300, "tokens", True, said.format("llama-3-8b (2,200), qwen (1,100)")),
    ]
    with pytest.raises(CloseRefusedError, match="cannot be closed"):
        period_close(month="2026-10", actor="ops", now=AFTER)
    with pytest.raises(WaiverError, match="service_tier cannot be waived"):
        exception_waive(period=period_of("2026-10"), kind="service_tier", subject="litellm-hq/flex", reason="no",
                        actor="ops", now=AFTER)  # fmt: skip


def priced(*models: str) -> dict[str, Any]:
    prices = {"input": "2.0000", "cache_read": "0.2000", "cache_creation": "2.0000", "output": "8.0000"}
    return {"name": "2026-10", "valid_from": "2026-10-01T00:00:00+08:00",
            "gpu": [{"accelerator": "NVIDIA-H800", "price_per_gpu_hour": "10.0000"}],
            "tokens": [{"model": model, **prices} for model in models]}  # fmt: skip


def test_a_rule_lets_the_tier_cost_what_the_standard_one_does(tmp_path: Path) -> None:
    """2,000,000 tokens of input at 2 a million."""
    apply(tmp_path, service_tiers=[FLEX])
    ingest_tokens(token_record(1, service_tier="flex", input_tokens=2_000_000, cache_read_input_tokens=0, output_tokens=0,
                               reasoning_output_tokens=0))  # fmt: skip
    assert tiers() == []
    period_close(month="2026-10", actor="ops", now=AFTER)
    assert Invoice.objects.get().total == money("4.00")
    (entry,) = AuditEntry.objects.filter(action="service_tier_rule_put")
    assert (entry.subject, entry.detail["treat_as"]) == ("litellm-hq/flex", "standard")


def test_a_rule_holds_from_its_instant_until_the_next(tmp_path: Path) -> None:
    """Of three requests the one of the 10th lies before the rule, that of the 25th behind the next."""
    rules = [FLEX | {"valid_from": "2026-10-12"}, FLEX | {"valid_from": "2026-10-20", "treat_as": "batch"}]
    apply(tmp_path, service_tiers=rules)
    for number, day in enumerate((10, 15, 25)):
        ingest_tokens(token_record(number, service_tier="flex", time=f"2026-10-{day}T12:00:00+08:00"))
    ingest_tokens(token_record(9, service_tier="flex", source="other", time="2026-10-15T12:00:00+08:00"))
    assert [item[:2] for item in tiers()] == [("litellm-hq/flex", 2200), ("other/flex", 1100)]


def test_late_usage_in_a_tier_stops_the_close_that_would_bill_it(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(1))
    period_close(month="2026-10", actor="ops", now=AFTER)
    ingest_tokens(token_record(2, service_tier="flex"))
    assert [item[:2] for item in tiers("2026-11")] == [("litellm-hq/flex", 1100)]
    with pytest.raises(CloseRefusedError, match="cannot be closed"):
        period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    apply(tmp_path, service_tiers=[FLEX])
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)


def test_the_file_is_idempotent_and_never_edits_a_rule(tmp_path: Path) -> None:
    apply(tmp_path, service_tiers=[FLEX])
    assert apply(tmp_path, service_tiers=[FLEX]).changes == []
    with pytest.raises(SetUpFileError, match=r"line \d+: service_tiers\[0\]: service tier flex of litellm-hq is treated as"):
        apply(tmp_path, service_tiers=[FLEX | {"treat_as": "batch"}])
    assert ServiceTierRule.objects.count() == 1


@pytest.mark.parametrize(("changed", "said"), [
    ({"service_tier": "default"}, "service_tier: 'default' is the standard tier, which needs no rule"),
    ({"treat_as": "FLEX"}, "treat_as: 'flex' is the tier itself"),
    ({"source": ""}, "source: is empty"),
    ({"tier": "x"}, "tier: is no field here"),
])  # fmt: skip
def test_a_rule_that_says_nothing_is_refused(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    with pytest.raises(SetUpFileError, match=said):
        apply(tmp_path, service_tiers=[FLEX | changed])
