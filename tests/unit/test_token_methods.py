"""Methods side by side on one report: exact prices, refusals in words, the passing prefix, gaps between methods."""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from pricing.token_methods import compared_methods, run_verdicts
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
    assert fitted.refusal == "least squares needs 4 runs of varied shape, there are 3"
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


def test_a_method_that_cannot_says_why() -> None:
    _, phase, fitted = compared_methods(parse_token_sheet(sheet(*(run(n, 5000, 500) for n in range(1, 6)))))
    assert "needs prefill_share" in phase.refusal
    assert fitted.refusal == "the runs do not tell the token classes apart: vary the ratio of input to output"


@pytest.mark.parametrize("used", ["0.5", "1"])
def test_what_is_recovered_of_provisioned_time_is_the_cost_of_the_hour(used: str) -> None:
    ratio, *_ = compared_methods(parse_token_sheet(sheet(*TABLE, serving_utilisation=used)))
    assert ratio.recovered == 10
