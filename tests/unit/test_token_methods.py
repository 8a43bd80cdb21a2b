"""Methods side by side on one report: exact prices, refusals in words, the passing prefix, gaps between methods."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from pricing.token_methods import compared_methods, run_verdicts
from pricing.token_pricing import price_tokens
from pricing.token_sheet import parse_token_sheet


def run(rps: int, fresh: int, out: int, **changed: Any) -> dict[str, Any]:
    return {
        "offered_rps": rps, "completed_rps": rps, "input_tps": fresh, "output_tps": out, "ttft_p99_ms": 400,
        "tpot_p99_ms": 40, "error_rate": 0, "duration_s": 600, **changed,
    }  # fmt: skip


def sheet(*runs: dict[str, Any], **changed: Any) -> dict[str, Any]:
    report = {"accelerator": "NVIDIA-H800", "gpus": 1, "model": "llama", "runs": list(runs)}
    return {"currency": "CNY", "gpu_hour_cost": "10", "ttft_p99_ms": 500, "tpot_p99_ms": 80, "report": report, **changed}


TABLE = [run(4, 4000, 400), run(5, 5000, 500), run(6, 5990, 599, ttft_p99_ms=640),
         run(7, 6100, 610, ttft_p99_ms=480, completed_rps=7)]  # fmt: skip


def test_a_pass_after_a_failure_is_void_and_the_last_of_the_prefix_is_selected() -> None:
    parsed = parse_token_sheet(sheet(*TABLE))
    verdicts = run_verdicts(parsed.tests[0].runs, parsed.terms.bounds)
    assert [(v.run.point.offered_rps, v.selected, v.void, list(v.broken)) for v in verdicts] == [
        (4, False, False, []), (5, True, False, []), (6, False, False, ["TTFT p99 640 > 500 ms"]), (7, False, True, []),
    ]  # fmt: skip


def test_three_methods_on_one_point() -> None:
    """R as in C05; T with a quarter of prefill: 2.5 / 18 and 7.5 / 1.8 per million; L has too few runs."""
    ratio, phase, fitted = compared_methods(parse_token_sheet(sheet(*TABLE, prefill_share="0.25")))
    assert ratio.prices == {"input": Decimal("0.3968"), "cache_read": Decimal("0.0397"), "cache_creation": Decimal("0.3968"),
                            "output": Decimal("1.5873")}  # fmt: skip
    assert phase.prices is not None
    assert (phase.prices["input"], phase.prices["output"]) == (Decimal("0.1389"), Decimal("4.1667"))
    assert ratio.recovered == phase.recovered == 10
    assert fitted.refusal == "least squares needs 4 runs of varied shape, there are 2"
    assert phase.far
    assert ratio.gaps is None
    assert dict(phase.gaps or {})["output"] == Fraction("4.1667") / Fraction("1.5873") - 1


def test_least_squares_shows_how_far_to_trust_it() -> None:
    """C09 without a cache: 50 GPU-seconds a million of input and 500 of output, in runs that take one GPU 600 s each."""
    shapes = [(2_000_000, 1_800_000), (8_000_000, 1_200_000), (4_000_000, 1_600_000), (10_000_000, 1_000_000)]
    runs = [run(n, fresh // 1000, out // 1000, duration_s=1000) for n, (fresh, out) in enumerate(shapes, start=1)]
    given = sheet(*runs, method="least-squares")
    (_, _, fitted) = compared_methods(parse_token_sheet(given))
    assert fitted.costs is not None
    assert fitted.costs.input == Fraction(50 * 10, 3600)
    assert fitted.costs.output == Fraction(500 * 10, 3600)
    assert fitted.diagnostics is not None
    assert (fitted.diagnostics["runs"], fitted.diagnostics["residual"], fitted.diagnostics["recovery_scale"]) == (
        "4", "0.000", "1.000000",
    )  # fmt: skip
    assert Decimal("2") <= Decimal(fitted.diagnostics["condition_number"]) < 30


SHAPES = [(4000, 3600), (16_000, 2400), (8000, 3200), (20_000, 2000), (10_000, 3000)]
"""Tokens/s of input and output that take one GPU at 25 and 250 GPU-seconds a million: 0.004 x 25 + 0.0036 x 250 = 1."""


def test_least_squares_takes_no_pass_above_a_rate_that_failed() -> None:
    """The runs below the failure fit exactly; the void one has three times the tokens of the first."""
    runs = [run(n, fresh, out) for n, (fresh, out) in enumerate(SHAPES[:4], start=1)]
    failed, void = run(5, 10_000, 3000, ttft_p99_ms=640), run(6, 12_000, 10_800, ttft_p99_ms=480)
    parsed = parse_token_sheet(sheet(*runs, failed, void, method="least-squares"))
    selected, costs = price_tokens(parsed.tests, parsed.terms)
    assert selected.point.offered_rps == 4
    # 25 and 250 GPU-seconds at 10 / 3600 each
    assert (costs.input, costs.output) == (Fraction(250, 3600), Fraction(2500, 3600))
    fitted = compared_methods(parsed)[2]
    assert fitted.diagnostics is not None
    assert (fitted.diagnostics["runs"], fitted.diagnostics["residual"]) == ("4", "0.000")


def test_least_squares_refuses_where_too_few_runs_pass_below_the_first_failure() -> None:
    runs = [run(n, fresh, out, ttft_p99_ms=640 if n == 3 else 400) for n, (fresh, out) in enumerate(SHAPES, start=1)]
    fitted = compared_methods(parse_token_sheet(sheet(*runs)))[2]
    assert fitted.refusal == "least squares needs 4 runs of varied shape, there are 2"


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 1, 0)])
def test_a_rate_at_which_one_of_two_runs_fails_has_failed(order: tuple[int, ...]) -> None:
    runs = [run(4, 4000, 400), run(5, 5000, 500), run(5, 5000, 500, ttft_p99_ms=640)]
    parsed = parse_token_sheet(sheet(*(runs[index] for index in order)))
    selected, costs = price_tokens(parsed.tests, parsed.terms)
    assert selected.point.offered_rps == 4
    # method R: 10 x 10^6 / 3600 / (4000 + 4 x 400)
    assert costs.input == Fraction(10 * 10**6, 3600 * 5600)
    verdicts = run_verdicts(parsed.tests[0].runs, parsed.terms.bounds)
    assert sorted((v.run.point.offered_rps, v.selected, v.void, bool(v.broken)) for v in verdicts) == [
        (4, True, False, False), (5, False, False, True), (5, False, True, False),
    ]  # fmt: skip


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_runs_that_pass_at_one_rate_the_one_with_fewer_tokens_gives_the_price(order: tuple[int, ...]) -> None:
    runs = [run(5, 5000, 500), run(5, 4900, 490)]
    parsed = parse_token_sheet(sheet(*(runs[index] for index in order)))
    selected, costs = price_tokens(parsed.tests, parsed.terms)
    assert selected.point.output_tps == 490
    assert costs.input == Fraction(10 * 10**6, 3600 * (4900 + 4 * 490))
    verdicts = run_verdicts(parsed.tests[0].runs, parsed.terms.bounds)
    assert [v.run.point.output_tps for v in verdicts if v.selected] == [490]


def test_a_method_that_cannot_says_why() -> None:
    _, phase, fitted = compared_methods(parse_token_sheet(sheet(*(run(n, 5000, 500) for n in range(1, 6)))))
    assert "needs prefill_share" in phase.refusal
    assert fitted.refusal == "the runs do not distinguish the token classes: vary the ratio of input to output"


def test_least_squares_recovers_the_hour_of_each_gpu_of_the_selected_run() -> None:
    """Every GPU spends its second: 50 a million of input and 500 of output. The run that is selected is of eight GPUs."""
    shapes = [(1, 2000, 1800), (8, 8000, 1200), (1, 4000, 1600), (1, 10000, 1000)]
    reports = [
        {**sheet()["report"], "gpus": gpus, "runs": [run(gpus, gpus * fresh, gpus * out)]} for gpus, fresh, out in shapes
    ]
    *_, fitted = compared_methods(parse_token_sheet({**sheet(), "method": "least-squares", "report": reports}))
    assert fitted.costs is not None
    assert (fitted.costs.input, fitted.costs.output) == (Fraction(50 * 10, 3600), Fraction(500 * 10, 3600))
    assert fitted.recovered == 10


@pytest.mark.parametrize("used", ["0.5", "1"])
def test_what_is_recovered_of_provisioned_time_is_the_cost_of_the_hour(used: str) -> None:
    ratio, *_ = compared_methods(parse_token_sheet(sheet(*TABLE, serving_utilisation=used)))
    assert ratio.recovered == 10
