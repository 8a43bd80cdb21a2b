"""A report that Locust 2 wrote against a server of known rate: 32 tokens in and 50 out per answer, 10 ms apart and more.

Asserted exactly is what the tool counts exactly: 72 answers in the 20 s asked for, and the tokens that the server reported.
"""

from fractions import Fraction
from pathlib import Path

from pricing.loadtests.own import parse_load_test
from pricing.loadtests.reports import Supplement, read_report
from pricing.token_price import LatencyBounds, ratio_costs, sustainable_point
from tests.load_reports.stream_server import INPUT_TOKENS, OUTPUT_TOKENS, TOKEN_SECONDS

REPORT = Path(__file__).parents[1] / "load_reports" / "locust_stats.csv"
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


def test_its_price_recovers_the_cost_of_the_hour() -> None:
    test = parse_load_test(read_report(REPORT.read_bytes(), REPORT.name, EXTRA).value)
    # 3.6 of 4 requests/s completed: users start one after the other, so the bound of completion is set to what was run
    bounds = LatencyBounds(
        Fraction(200), Fraction(20), completed_over_offered=Fraction(9, 10), min_duration_s=Fraction(20)
    )
    point = sustainable_point([run.point for run in test.runs], bounds)
    costs = ratio_costs(10, uncached_tps=point.input_tps / 8, output_tps=point.output_tps / 8)
    assert costs.recovered_per_hour(uncached_tps=point.input_tps / 8, output_tps=point.output_tps / 8) == 10
