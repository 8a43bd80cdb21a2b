"""`python -m pricing tokens`: prices of token classes from reports of load tests."""

import json
from typing import Any

import pytest

from tests.pricing_cli import FIELDS, SLA, ZERO, Desk, costs, desk, load_test

__all__ = ["desk"]


def test_tokens_gives_the_json_of_the_contract(desk: Desk) -> None:
    report = desk.file("a.json", load_test())
    answer = desk.json("tokens", report, "--gpu-hour-cost", "10", "--markup", "0.20", *SLA)
    assert list(answer) == ["model", "method", "selected", "gpu_hour_cost", "classes"]
    assert answer["selected"] == load_test()["runs"][3]
    assert (answer["model"], answer["method"], answer["gpu_hour_cost"]) == ("m", "ratio", "10.000000000000")
    assert answer["classes"] == [
        {"class": "input", "cost_per_1m": "0.396825396825", "price_per_1m": "0.4762"},
        {"class": "cache_read", "cost_per_1m": "0.039682539683", "price_per_1m": "0.0476"},
        {"class": "output", "cost_per_1m": "1.587301587302", "price_per_1m": "1.9048"},
    ]


def test_rates_are_of_the_whole_deployment(desk: Desk) -> None:
    one, eight = desk.file("a.json", load_test()), desk.file("b.json", load_test(gpus=8))
    of_one = desk.json("tokens", one, "--gpu-hour-cost", "10", *SLA)
    of_eight = desk.json("tokens", eight, "--gpu-hour-cost", "1.25", *SLA)
    assert costs(of_one) == costs(of_eight)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--method", "output-only"), (ZERO, ZERO, "5.555555555556")),
        (("--method", "output-only", "--serving-utilisation", "0.60"), (ZERO, ZERO, "9.259259259259")),
        (("--method", "phase", "--prefill-share", "0.25"), ("0.138888888889", "0.013888888889", "4.166666666667")),
        (("--output-input-ratio", "5", "--cache-read-ratio", "0.5"), ("0.370370370370", "0.185185185185", "1.851851851852")),
    ],
)
def test_methods(desk: Desk, options: tuple[str, ...], expected: tuple[str, ...]) -> None:
    answer = desk.json("tokens", desk.file("a.json", load_test()), "--gpu-hour-cost", "10", *SLA, *options)
    assert tuple(costs(answer).values()) == expected


def test_cached_input_is_part_of_the_input(desk: Desk) -> None:
    run = load_test()["runs"][3] | {"input_tps": "5000", "cached_input_tps": "3000"}
    report = desk.file("a.json", load_test(runs=[run]))
    answer = desk.json("tokens", report, "--gpu-hour-cost", "10", *SLA)
    assert costs(answer) == {"input": "0.645994832041", "cache_read": "0.064599483204", "output": "2.583979328165"}


def shape(input_tps: int, cached_tps: int, output_tps: int, gpus: int) -> dict[str, Any]:
    """600 s at which (50, 5, 500) GPU-seconds per 1M tokens of each class are used."""
    run = dict(zip(FIELDS, ("5", "5", str(input_tps + cached_tps), str(output_tps), "100", "20", "0"), strict=True))
    return load_test(runs=[run | {"cached_input_tps": str(cached_tps), "duration_s": "600"}], gpus=gpus)


def test_least_squares_takes_one_report_per_shape(desk: Desk) -> None:
    shapes = [(10_000, 0, 1_000, 1), (4_000, 20_000, 3_400, 2), (0, 0, 2_000, 1), (30_000, 100_000, 0, 2)]
    files = [desk.file(f"{number}.json", shape(*values)) for number, values in enumerate(shapes)]
    answer = desk.json("tokens", *files, "--gpu-hour-cost", "10", "--method", "least-squares", *SLA)
    assert costs(answer) == {"input": "0.138888888889", "cache_read": "0.013888888889", "output": "1.388888888889"}


@pytest.mark.parametrize(
    ("name", "other"), [("precision", "fp8"), ("engine", "sglang"), ("model", "n"), ("accelerator", "H20")]
)
def test_least_squares_takes_no_report_of_another_deployment(desk: Desk, name: str, other: str) -> None:
    """A precision halves the cost of a token: one fit over both would price neither."""
    shapes = [(10_000, 0, 1_000, 1), (4_000, 20_000, 3_400, 2), (0, 0, 2_000, 1), (30_000, 100_000, 0, 2)]
    reports = [shape(*values) for values in shapes]
    files = [desk.file(f"{number}.json", report) for number, report in enumerate([*reports[:3], reports[3] | {name: other}])]
    err = desk.refused("tokens", *files, "--gpu-hour-cost", "10", "--method", "least-squares", *SLA)
    assert err[0].endswith(f"the reports are not of one deployment: {name} is {reports[0][name]!r} and {other!r}")


def test_no_sustainable_run_is_for_a_person_to_decide(desk: Desk) -> None:
    report = desk.file("a.json", load_test())
    status, _, err = desk.run("tokens", report, "--gpu-hour-cost", "10", "--ttft-p99-ms", "50", "--tpot-p99-ms", "80")
    assert status == 3
    assert err == [f"{report}: no run keeps the bounds at the lowest offered rate 1: TTFT p99 120 > 50 ms"]


def test_reports_of_two_deployments_do_not_mix(desk: Desk) -> None:
    files = [desk.file("a.json", load_test()), desk.file("b.json", load_test(model="other"))]
    err = desk.refused("tokens", *files, "--gpu-hour-cost", "10", *SLA)
    assert "model is 'm' and 'other'" in err[0]


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"error_rate": "2"}, "runs[0].error_rate: '2' must be a number from 0 to 1 (ratio of requests): 2 % is 0.02"),
        ({"offered_rps": "inf"}, "runs[0].offered_rps: 'inf' must be a number above 0"),
        ({"duration_s": None}, "runs[0].duration_s: is missing"),
        ({"cached_input_tps": "9999"}, "runs[0].cached_input_tps: 9999.000 is above input_tps"),
        ({"completed_rps": "9"}, "runs[0].completed_rps: 9.000 is far above offered_rps"),
        ({"ttft_p50_ms": "9"}, "runs[0].ttft_p50_ms: is no field of a run, did you mean ttft_p99_ms?"),
    ],
)
def test_a_bad_run_is_named_by_its_number(desk: Desk, changed: dict[str, Any], says: str) -> None:
    run = {name: value for name, value in {**load_test()["runs"][0], **changed}.items() if value is not None}
    (complaint,) = desk.refused("tokens", desk.file("a.json", load_test(runs=[run])), "--gpu-hour-cost", "10", *SLA)
    assert says in complaint


@pytest.mark.parametrize(
    ("option", "value"),
    [("--markup", "20%"), ("--markup", "20"), ("--gpu-hour-cost", "-1"), ("--serving-utilisation", "60"), ("--gpus", "1.5")],
)
def test_a_bad_option_is_one_line_with_its_value(desk: Desk, option: str, value: str) -> None:
    report = desk.file("a.json", load_test())
    (complaint,) = desk.refused("tokens", report, "--gpu-hour-cost", "10", *SLA, f"{option}={value}")
    assert option in complaint
    assert repr(value) in complaint


VLLM: dict[str, Any] = {
    "model_id": "m", "num_prompts": 3000, "request_rate": 5, "duration": 600, "completed": 3000, "failed": 0,
    "total_input_tokens": 3_000_000, "total_output_tokens": 300_000, "request_throughput": 5, "p99_ttft_ms": 410,
    "p99_tpot_ms": 38, "accelerator": "NVIDIA-H800", "gpus": "1",
}  # fmt: skip
OWN = {name: value for name, value in load_test()["runs"][3].items() if name != "cached_input_tps"}


@pytest.mark.parametrize("content", [VLLM, load_test(runs=[OWN])])
def test_a_report_that_does_not_state_its_cached_input_is_priced_and_the_command_says_so(
    desk: Desk, content: dict[str, Any]
) -> None:
    """A report of 5000 tokens/s in and 500 out on one GPU: method R divides by 5000 + 4 x 500, or with 3000 cached by
    2000 + 300 + 2000.
    """
    report = desk.file("report.json", content)
    status, out, err = desk.run("tokens", report, "--gpu-hour-cost", "10", *SLA, "--json")
    note = (
        f"{report}: does not state cached input of 1 of 1 runs: it is priced as uncached; give cached_input_share, 0 where "
        "nothing came from the cache"
    )
    assert (status, err) == (0, [note])
    answer = json.loads(out)
    assert answer["notes"] == [note]
    assert costs(answer)["input"] == "0.396825396825"
    reported = desk.json("tokens", report, "--gpu-hour-cost", "10", *SLA, "--cached-input-share", "0.6")
    assert "notes" not in reported
    assert costs(reported)["input"] == "0.645994832041"


def test_gpus_that_the_report_contradicts_are_refused_not_passed_over(desk: Desk) -> None:
    """1M of input cost 0.396825396825 on the one GPU of the report; on two they would cost twice as much."""
    report = desk.file("report.json", load_test())
    err = desk.refused("tokens", report, "--gpu-hour-cost", "10", *SLA, "--gpus", "2")
    assert err == [f"{report}: states gpus 1, but 2 was given beside it: leave that out, or correct the report"]
    answer = desk.json("tokens", report, "--gpu-hour-cost", "10", *SLA, "--gpus", "1")
    assert costs(answer)["input"] == "0.396825396825"


def test_a_share_that_the_report_leaves_no_room_for_is_named(desk: Desk) -> None:
    report = desk.file("report.json", load_test())
    status, out, err = desk.run("tokens", report, "--gpu-hour-cost", "10", *SLA, "--cached-input-share", "0.6", "--json")
    note = f"{report}: states cached_input_share of every run by itself: what was given beside it is not used"
    assert (status, err, json.loads(out)["notes"]) == (0, [note], [note])
