"""Reports that Locust 2 and GuideLLM 0.8 wrote against a server of known rate: 32 tokens in and 50 out per answer, 10 ms
apart and more.

Asserted exactly is what the tools count exactly: answers in the 20 s asked for, and the tokens that the server reported.
"""

from fractions import Fraction
from pathlib import Path

import pytest

from pricing.loadtests.own import parse_load_test
from pricing.loadtests.reports import Supplement, read_report
from pricing.token_price import LatencyBounds, ratio_costs, sustainable_point
from tests.factories.load_reports import REPORT, REPORTS
from tests.load_reports.stream_server import INPUT_TOKENS, OUTPUT_TOKENS, TOKEN_SECONDS

GUIDELLM = REPORTS / "guidellm_benchmarks.json"
THREE_RATES = REPORTS / "guidellm_three_rates.json"
ANSWERS, SECONDS = 72, 20
EXTRA = Supplement(accelerator="NVIDIA-H800", gpus=Fraction(8), model="known-rate")


def test_the_rates_of_a_file_that_locust_wrote_are_those_of_the_server() -> None:
    test = parse_load_test(read_report(REPORT.read_bytes(), REPORT.name, EXTRA).value)
    (run,) = test.runs
    assert run.point.output_tps == Fraction(ANSWERS * OUTPUT_TOKENS, SECONDS) == 180
    assert run.point.input_tps == Fraction(ANSWERS * INPUT_TOKENS, SECONDS) == Fraction(576, 5)
    assert run.point.completed_rps == Fraction(ANSWERS, SECONDS)
    assert (run.point.offered_rps, run.point.error_rate, run.point.duration_s) == (4, 0, SECONDS)
    # Locust keeps percentiles in whole milliseconds above 10; no answer can be quicker than the server's pace
    assert run.point.tpot_p99_ms >= TOKEN_SECONDS * 1000
    assert run.point.ttft_p99_ms >= TOKEN_SECONDS * 1000
    assert (run.point.tpot_p99_ms, run.point.ttft_p99_ms) == (16, 150)


def test_the_rates_of_a_file_that_guidellm_wrote_are_those_of_the_server() -> None:
    test = parse_load_test(read_report(GUIDELLM.read_bytes(), GUIDELLM.name, EXTRA).value)
    (run,) = test.runs
    answers = 78  # two of the 80 begun in 20 s were still under way at its end
    assert test.model == "known-rate"
    assert run.point.output_tps == Fraction(answers * OUTPUT_TOKENS, SECONDS) == 195
    assert run.point.input_tps == Fraction(answers * INPUT_TOKENS, SECONDS) == Fraction(624, 5)
    assert run.point.completed_rps == Fraction(answers, SECONDS)
    assert (run.point.offered_rps, run.point.error_rate, run.point.duration_s) == (4, 0, SECONDS)
    assert TOKEN_SECONDS * 1000 <= run.point.tpot_p99_ms < 14
    assert TOKEN_SECONDS * 1000 <= run.point.ttft_p99_ms < 67


@pytest.mark.parametrize(
    ("file", "completed", "weighted_tps"),
    [
        # tokens/s in and out per GPU, output at four times: 14.4 and 22.5
        # 3.6 of 4 requests/s completed: users start one after the other, so the bound of completion is set to what was run
        (REPORT, Fraction(9, 10), "104.4"),
        (GUIDELLM, Fraction(97, 100), "113.1"),  # 15.6 and 24.375
    ],
)
def test_the_price_from_a_file_is_that_of_the_known_rate(file: Path, completed: Fraction, weighted_tps: str) -> None:
    test = parse_load_test(read_report(file.read_bytes(), file.name, EXTRA).value)
    bounds = LatencyBounds(Fraction(200), Fraction(20), completed_over_offered=completed, min_duration_s=Fraction(20))
    point = sustainable_point([run.point for run in test.runs], bounds)
    costs = ratio_costs(10, uncached_tps=point.input_tps / 8, output_tps=point.output_tps / 8)
    assert costs.input == Fraction(10 * 10**6, 3600) / Fraction(weighted_tps)
    assert costs.output == 4 * costs.input


def test_without_edges_guidellm_measures_the_known_rate_at_every_load() -> None:
    """Input is counted by request and exact; output by the token, of which those of one answer may fall beside the edge."""
    test = parse_load_test(read_report(THREE_RATES.read_bytes(), THREE_RATES.name, EXTRA).value)
    assert [run.point.offered_rps for run in test.runs] == [2, 4, 8]
    for run in test.runs:
        rate, point = run.point.offered_rps, run.point
        assert (point.completed_rps, point.input_tps, point.error_rate) == (rate, rate * INPUT_TOKENS, 0)
        assert abs(point.output_tps - rate * OUTPUT_TOKENS) <= Fraction(OUTPUT_TOKENS, 16)
        assert point.duration_s == 16
    # the last of the passing prefix: 18.88 ms of TPOT at 8 requests/s is beyond 15 ms, 14.48 ms at 4 is not
    bounds = LatencyBounds(Fraction(200), Fraction(15), min_duration_s=Fraction(16))
    assert sustainable_point([run.point for run in test.runs], bounds) == test.runs[1].point
