"""A token cost sheet: the report, what it ran on and every term beside the prices that follow from them."""

from typing import Any

import pytest

from pricing.token_sheet import TokenSheetError, parse_token_sheet

RUN = {
    "offered_rps": "10", "completed_rps": "10", "input_tps": "5500", "cached_input_tps": "500", "output_tps": "500",
    "ttft_p99_ms": "900", "tpot_p99_ms": "40", "error_rate": "0", "duration_s": "600",
}  # fmt: skip
SHEET: dict[str, Any] = {
    "currency": "CNY", "gpu_hour_cost": "10", "markup": "0.20", "ttft_p99_ms": "1000", "tpot_p99_ms": "50",
    "report": {"accelerator": "NVIDIA-H800", "gpus": 1, "model": "llama-3-8b", "engine": "vllm 0.11", "precision": "fp8",
               "runs": [RUN]},
}  # fmt: skip


def classes(**changed: Any) -> dict[str, tuple[str, str]]:
    result = parse_token_sheet({**SHEET, **changed}).result()
    return {row["class"]: (row["cost_per_1m"], row["price_per_1m"]) for row in result["classes"]}


def messages(**changed: Any) -> list[str]:
    with pytest.raises(TokenSheetError) as caught:
        parse_token_sheet({**SHEET, **changed})
    return caught.value.messages


def test_method_ratio_prices_every_class_with_writing_the_cache_at_the_price_of_input() -> None:
    # 10 x 10^6 / 3600 / (5000 + 0.1 x 500 + 4 x 500) = 0.394011032309 and 4 x, 0.1 x of it; x 1.2
    assert classes() == {
        "input": ("0.394011032309", "0.4728"),
        "cache_read": ("0.039401103231", "0.0473"),
        "output": ("1.576044129236", "1.8913"),
        "cache_creation": ("0.394011032309", "0.4728"),
    }


def test_output_only_costs_what_the_first_formula_says() -> None:
    # 10 x 10^6 / (3600 x 500) = 50/9
    assert classes(method="output-only")["output"] == ("5.555555555556", "6.6667")
    assert classes(method="output-only", serving_utilisation="0.5")["output"] == ("11.111111111111", "13.3333")


def test_writing_the_cache_may_cost_more_than_input() -> None:
    assert classes(cache_creation_ratio="1.25")["cache_creation"] == ("0.492513790386", "0.5910")


def test_three_bad_fields_get_three_messages_with_the_place_in_the_report() -> None:
    report = {**SHEET["report"], "runs": [{**RUN, "error_rate": "2"}]}
    reported = messages(markup="20", gpu_hour_cost=None, report=report)
    assert [line.split(":")[0] for line in reported] == ["gpu_hour_cost", "markup", "report.runs[0].error_rate"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"currency": "yuan"}, "currency"),
        ({"method": "guess"}, "method"),
        ({"method": "phase"}, "prefill_share"),
        ({"report": None}, "report"),
        ({"report": [{}]}, "report[0].model"),
        ({"colour": "red"}, "colour"),
        ({"gpu_hour_cost": 0.5}, "gpu_hour_cost"),
    ],
)
def test_a_bad_field_is_named(changed: dict[str, Any], field: str) -> None:
    assert field in [line.split(":")[0] for line in messages(**changed)]
