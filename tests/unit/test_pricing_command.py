"""`python -m pricing`: what the contract promises of output, exit status and complaints."""

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from pricing.__main__ import main
from tests.golden.registry import SHEET

RUNS = [
    ("1", "1.0", "1000", "100", "120", "22", "0"), ("2", "2.0", "2000", "200", "160", "25", "0"),
    ("4", "4.0", "4000", "400", "260", "31", "0"), ("5", "5.0", "5000", "500", "410", "38", "0"),
    ("6", "5.99", "5990", "599", "640", "47", "0"), ("7", "6.1", "6100", "610", "480", "60", "0.02"),
]  # fmt: skip
FIELDS = ("offered_rps", "completed_rps", "input_tps", "output_tps", "ttft_p99_ms", "tpot_p99_ms", "error_rate")
ZERO = "0.000000000000"
SLA = ("--ttft-p99-ms", "500", "--tpot-p99-ms", "80")
POLICY = {
    "name": "bands-v1", "valid_from": "2026-10-01T00:00:00+08:00", "hfu_below": "0.20", "penalty": "0.20",
    "mfu_above": "0.50", "reward": "0.10", "min_minutes": 30, "min_coverage": "0.95",
}  # fmt: skip
PLAN = {
    "active_params": "1e10", "tokens": "1e13", "accelerator": "NVIDIA-H100", "dtype": "bf16", "gpus": 256, "mfu": "0.43",
    "goodput": "0.90", "price_per_gpu_hour": "10",
    "overheads": {"experiments": "0.20", "evaluation": "0.05", "alignment": "0.15", "data": "0.05"},
    "contingency_ratio": "0.20", "gpu_power_kw": "1.275", "pue": "1.3", "carbon_kg_per_kwh": "0.5306",
}  # fmt: skip


class Desk:
    """A directory with input files, and the command run on them."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self.capsys = capsys

    def file(self, name: str, content: Any) -> str:
        path = self.home / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return str(path)

    def run(self, *arguments: str) -> tuple[int, str, list[str]]:
        try:
            status = main(arguments)
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        output = self.capsys.readouterr()
        return status, output.out, output.err.splitlines()

    def json(self, *arguments: str) -> Any:
        status, out, err = self.run(*arguments, "--json")
        assert (status, err) == (0, [])
        return json.loads(out)


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def load_test(**changed: Any) -> dict[str, Any]:
    runs = [dict(zip(FIELDS, run, strict=True)) | {"cached_input_tps": "0", "duration_s": "600"} for run in RUNS]
    base = {"accelerator": "NVIDIA-H800", "gpus": 1, "model": "m", "engine": "vllm", "precision": "bf16", "runs": runs}
    return {**base, **changed}


GPU_HOUR = {
    "accelerator": "NVIDIA-H800", "currency": "CNY",
    "components": [
        {"name": "hardware", "cost_per_gpu_hour": "6.164383561644"},
        {"name": "power", "cost_per_gpu_hour": "1.326000000000"},
        {"name": "hosting", "cost_per_gpu_hour": "1.215277777778"},
        {"name": "operations", "cost_per_gpu_hour": "0.949435763889"},
    ],
    "cost_per_gpu_hour": "9.655097103311", "price_per_gpu_hour": "11.5861",
}  # fmt: skip


def test_gpu_hour_gives_the_json_of_the_contract_to_the_letter(desk: Desk) -> None:
    numbers = {name: value if name in ("accelerator", "currency") else Decimal(value) for name, value in SHEET.items()}
    plain = "{" + ", ".join(f'"{k}": "{v}"' if isinstance(v, str) else f'"{k}": {v}' for k, v in numbers.items()) + "}"
    for name, content in (("a.json", SHEET), ("b.json", plain), ("c.yaml", yaml.safe_dump(SHEET)), ("d", plain)):
        assert desk.json("gpu-hour", desk.file(name, content)) == GPU_HOUR


LISTED = (
    "--list-currency", "CNY", "--exchange-rate", "7.1234", "--rate-date", "2026-10-01", "--actual-cost", "10000000",
    "--recovered", "9400000", "--planned-gpu-hours", "1200000", "--reserved-ratio", "0.80", "--preemptible-ratio", "0.05",
)  # fmt: skip


def test_the_list_has_tiers_in_its_currency_with_the_true_up_of_last_year(desk: Desk) -> None:
    """(9.655097103311 x 1.2 + 0.5) x 7.1234 = 86.09424...; 80 % of it; and no less than 1.326 x 7.1234 of power."""
    told = desk.json("gpu-hour", desk.file("a.json", SHEET), *LISTED)
    assert told.pop("list_prices") == {
        "currency": "CNY", "exchange_rate": "7.12340000", "rate_date": "2026-10-01",
        "true_up_per_gpu_hour": "0.500000000000", "on_demand": "86.0942", "reserved": "68.8754", "preemptible": "9.4456",
    }  # fmt: skip
    assert told == GPU_HOUR
    status, out, _ = desk.run("gpu-hour", desk.file("a.json", SHEET), "--reserved-ratio", "0.80")
    assert (status, out.splitlines()[-3:]) == (
        0, ["currency         CNY", "on_demand    11.5861", "reserved      9.2689"]
    )  # fmt: skip


def test_the_sheet_keeps_what_the_list_is_made_with_and_an_option_stands_in_its_place(desk: Desk) -> None:
    """11.586116523973 x 7.1234 = 82.53254...; at 8 it is 92.68893..."""
    terms = {"list_currency": "USD", "exchange_rate": "7.1234", "rate_date": "2026-10-01", "reserved_ratio": "0.5"}
    path = desk.file("a.json", {**SHEET, **terms, "carbon_kg_per_kwh": "0.5306"})
    told = desk.json("gpu-hour", path)
    assert told["list_prices"] == {
        "currency": "USD", "exchange_rate": "7.12340000", "rate_date": "2026-10-01", "on_demand": "82.5325",
        "reserved": "41.2663",
    }  # fmt: skip
    assert told["footprint"] == {"kwh": "1.657500000000", "kg_operational": "0.879469500000"}
    assert told["price_per_gpu_hour"] == "11.5861"
    assert desk.json("gpu-hour", path, "--reserved-ratio", "1")["list_prices"]["reserved"] == "82.5325"
    status, out, _ = desk.run(
        "gpu-hour", path, "--list-currency", "EUR", "--exchange-rate", "8", "--rate-date", "2026-11-01"
    )
    assert status == 0
    lines = [line.split() for line in out.splitlines()]
    for line in (["currency", "EUR"], ["on_demand", "92.6889"], ["kg_operational", "0.879469500000"]):
        assert line in lines


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (LISTED[:2], "--exchange-rate, --rate-date: missing, but --list-currency is given"),
        (LISTED[6:8], "--recovered, --planned-gpu-hours: missing, but --actual-cost is given"),
        (("--actual-cost", "0", "--recovered", "9e9", "--planned-gpu-hours", "1"), "--recovered: last year's surplus"),
        (("--preemptible-ratio", "40"), "up to 1 (ratio of the on-demand price): 80 % is 0.80"),
        (("--rate-date", "tomorrow"), "'tomorrow' must be a day such as 2026-10-01"),
        (("--list-currency", "yuan"), "'yuan' must be three capital letters such as CNY"),
    ],
)
def test_a_bad_option_of_the_list_is_named(desk: Desk, options: tuple[str, ...], says: str) -> None:
    status, out, err = desk.run("gpu-hour", desk.file("a.json", SHEET), *options)
    assert (status, out) == (2, "")
    assert says in err[-1]


def test_a_yaml_number_is_read_by_its_text(desk: Desk) -> None:
    text = "\n".join(f"{name}: {value}" for name, value in SHEET.items())
    sheet = desk.file("a.yaml", text.replace("gpu_price: 200000", "gpu_price: 200_000.00000000000000000001"))
    cost = desk.json("gpu-hour", sheet)["cost_per_gpu_hour"]
    assert cost == GPU_HOUR["cost_per_gpu_hour"]
    octal_elsewhere = desk.file("b.yaml", text.replace("markup: 0.20", "markup: 010e-2"))
    assert desk.json("gpu-hour", octal_elsewhere)["price_per_gpu_hour"] == "10.6206"


def test_a_table_is_aligned(desk: Desk) -> None:
    status, out, _ = desk.run("gpu-hour", desk.file("a.json", SHEET))
    lines = out.splitlines()
    assert status == 0
    assert lines[0] == "NVIDIA-H800, CNY per GPU-hour"
    assert lines[3].startswith("hardware    6.164383561644   63.85 %  server_price, ")
    assert "price              11.5861" in lines[-1]


def test_every_bad_field_is_a_line_with_its_place(desk: Desk) -> None:
    text = "\n".join(f"{name}: {value}" for name, value in SHEET.items()).replace("gpu_power_kw: 0.7", "gpu_power_kw: 700")
    sheet = desk.file("bad.yaml", text.replace("pue: 1.3", "pue: 30%").replace("life_years", "life_year"))
    status, out, err = desk.run("gpu-hour", sheet, "--json")
    assert (status, out) == (2, "")
    assert [line.removeprefix(sheet).split(":")[:2] for line in err] == [
        ["", " life_years"], [" line 12", " gpu_power_kw"], [" line 14", " pue"], [" line 11", " life_year"],
    ]  # fmt: skip
    assert err[1].endswith("700 W is 0.7")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", b"", "is empty"),
        ("a.json", b" \n", "is empty"),
        ("a.json", b'{"pue": 1.3,\n "markup"', "line 2: ends in the middle of a value, is it truncated?"),
        ("a.json", b'{"pue": 1.3,\n oops}', "line 2: is no JSON"),
        ("a.json", b'{"pue": 1, "pue": 2}', "field 'pue' is given twice"),
        ("a.json", b'{"pue": NaN}', "NaN is no number"),
        ("a.json", b"[" * 100_000, "nested too deeply"),
        ("a.json", b"[1]", "must be a mapping of the fields of a cost sheet, not a list"),
        ("a.yaml", b"pue: [1", "line 1: is no YAML"),
        ("a.yaml", b"pue: 1\npue: 2", "line 2: is no YAML: field 'pue' is given twice"),
        ("a.yaml", b"a: &x 1\nb: *x", "references (*name) are not read"),
        ("a.yaml", b"? [a]\n: 1", "a field name must be text"),
        ("a.yaml", b"--- 1\n--- 2", "is no YAML"),
        ("a.yaml", b"\ta: 1", "is no YAML"),
        ("a.yaml", b"- a\n- b", "must be a mapping"),
        ("a.yaml", b"just text", "must be a mapping"),
        ("a.yaml", b"# nothing\n", "must be a mapping"),
        ("a.yaml", "pue: 1.3".encode("utf-16"), "is UTF-16, must be text in UTF-8"),
        ("a.yaml", "名: 1".encode("gb18030"), "is not UTF-8 at byte 0"),
        ("a.yaml", b"pue: 1\0", "holds a zero byte"),
        ("a.yaml", b"\x1f\x8b\x08", "is a gzip archive"),
        ("a.yaml", b"[" * 5_000, "is no YAML"),
    ],
)
def test_a_file_that_is_none_gets_one_line(desk: Desk, name: str, content: bytes, says: str) -> None:
    path = desk.file(name, content)
    status, out, err = desk.run("gpu-hour", path)
    assert (status, out) == (2, "")
    assert len(err) == 1
    assert err[0].startswith(path)
    assert says in err[0]


def test_a_byte_order_mark_does_no_harm(desk: Desk) -> None:
    assert desk.json("gpu-hour", desk.file("a.json", b"\xef\xbb\xbf" + json.dumps(SHEET).encode())) == GPU_HOUR


def test_a_file_that_is_not_there_gets_one_line(desk: Desk) -> None:
    assert desk.run("gpu-hour", str(desk.home / "no.yaml"))[2] == [f"{desk.home}/no.yaml: No such file or directory"]
    assert desk.run("gpu-hour", str(desk.home))[2] == [f"{desk.home}: Is a directory"]


@pytest.mark.parametrize("arguments", [(), ("gpu-hour",), ("nonsense",), ("tokens", "x"), ("efficiency", "a", "--colour")])
def test_bad_usage_is_one_line_and_status_2(desk: Desk, arguments: tuple[str, ...]) -> None:
    status, out, err = desk.run(*arguments)
    assert (status, out, len(err)) == (2, "", 1)


@pytest.mark.parametrize("command", ["", "gpu-hour", "tokens", "efficiency", "training-plan"])
def test_every_command_has_help(desk: Desk, command: str) -> None:
    status, out, _ = desk.run(*filter(None, [command, "--help"]))
    assert status == 0
    assert out.startswith("usage: python -m pricing")


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


def costs(answer: Any) -> dict[str, str]:
    return {row["class"]: row["cost_per_1m"] for row in answer["classes"]}


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


def test_no_sustainable_run_is_for_a_person_to_decide(desk: Desk) -> None:
    report = desk.file("a.json", load_test())
    status, _, err = desk.run("tokens", report, "--gpu-hour-cost", "10", "--ttft-p99-ms", "50", "--tpot-p99-ms", "80")
    assert status == 3
    assert err == [f"{report}: no run keeps the bounds at the lowest offered rate 1: TTFT p99 120 > 50 ms"]


def test_reports_of_two_deployments_do_not_mix(desk: Desk) -> None:
    files = [desk.file("a.json", load_test()), desk.file("b.json", load_test(model="other"))]
    status, _, err = desk.run("tokens", *files, "--gpu-hour-cost", "10", *SLA)
    assert status == 2
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
    status, _, err = desk.run("tokens", desk.file("a.json", load_test(runs=[run])), "--gpu-hour-cost", "10", *SLA)
    assert status == 2
    assert len(err) == 1
    assert says in err[0]


@pytest.mark.parametrize(
    ("option", "value"),
    [("--markup", "20%"), ("--markup", "20"), ("--gpu-hour-cost", "-1"), ("--serving-utilisation", "60"), ("--gpus", "1.5")],
)
def test_a_bad_option_is_one_line_with_its_value(desk: Desk, option: str, value: str) -> None:
    report = desk.file("a.json", load_test())
    status, _, err = desk.run("tokens", report, "--gpu-hour-cost", "10", *SLA, f"{option}={value}")
    assert status == 2
    assert len(err) == 1
    assert option in err[0]
    assert repr(value) in err[0]


def workload(identifier: str, **changed: Any) -> dict[str, Any]:
    base = {"id": identifier, "gpu_seconds": 72_000, "minutes": 60, "coverage": "1", "mfu": "0.30", "hfu": "0.40"}
    return {**base, **changed}


def test_efficiency_gives_multiplier_and_reason(desk: Desk) -> None:
    cases = {
        "a": workload("a", mfu="0.15", hfu="0.1999"), "b": workload("b", mfu="0.5001", hfu="0.60"), "c": workload("c"),
        "d": workload("d", minutes=29), "e": workload("e", coverage="0.92"), "f": workload("f", mfu="0.55", hfu="0.18"),
        "g": workload("g", mfu=None), "h": workload("h", mfu="0.18", hfu="0.20"),
    }  # fmt: skip
    answer = desk.json("efficiency", desk.file("a.json", {"policy": POLICY, "workloads": list(cases.values())}))
    assert {row["id"]: (row["multiplier"], row["reason"]) for row in answer["workloads"]} == {
        "a": ("1.2", "penalty"), "b": ("0.9", "reward"), "c": ("1", "neutral"), "d": ("1", "neutral:short"),
        "e": ("1", "neutral:coverage"), "f": ("1", "neutral:inconsistent"), "g": ("1", "neutral:missing"),
        "h": ("1", "neutral"),
    }  # fmt: skip


def test_a_policy_may_penalise_on_mfu_which_recomputation_does_not_lift(desk: Desk) -> None:
    """MFU 0.16 with full recomputation is HFU 0.2133: no penalty on HFU; on MFU 1.2, or 1 + 0.2 x 0.4 without cliffs."""
    jobs = [workload("a", mfu="0.16", hfu="0.2133"), workload("b", mfu="0.20", hfu="0.2667")]
    told = {}
    for name, changed in (
        ("hfu", {}), ("mfu", {"penalise_on": "mfu"}), ("linear", {"penalise_on": "mfu", "form": "linear"}),
        ("wide", {"penalise_on": "mfu", "form": "linear", "width": "0.16"}),
    ):  # fmt: skip
        answer = desk.json("efficiency", desk.file("a.json", {"policy": {**POLICY, **changed}, "workloads": jobs}))
        told[name] = [row["multiplier"] for row in answer["workloads"]]
    assert told == {"hfu": ["1", "1"], "mfu": ["1.2", "1"], "linear": ["1.08", "1"], "wide": ["1.05", "1"]}


def test_a_policy_file_has_classes_exemptions_and_suspended_teams(desk: Desk) -> None:
    classes = [
        {"name": "debug", "queues": ["debug*"], "exempt_until": "2026-10-15"},
        {"name": "small", "queues": ["small"], "mfu_above": "0.35", "reward": "0.05", "penalise_on": "mfu"},
    ]
    jobs = [
        workload("a", mfu="0.05", hfu="0.10", queue="debug-1", start="2026-10-10"),
        workload("b", mfu="0.05", hfu="0.10", queue="debug-1", start="2026-10-16"),
        workload("c", mfu="0.40", hfu="0.45", queue="small"),
        workload("d", mfu="0.19", hfu="0.30", queue="small"),
        workload("e", mfu="0.55", hfu="0.60", team="cv"),
        workload("f", gpu_seconds=3599),
    ]
    policy = {**POLICY, "classes": classes, "unrewarded": ["cv"]}
    answer = desk.json("efficiency", desk.file("a.json", {"policy": policy, "workloads": jobs}))
    assert [(row["multiplier"], row["reason"]) for row in answer["workloads"]] == [
        ("1", "neutral:exempt"), ("1.2", "penalty"), ("0.95", "reward"), ("1.2", "penalty"), ("1", "neutral:suspended"),
        ("1", "neutral:short"),
    ]  # fmt: skip
    policy["min_gpu_seconds"] = 3599
    answer = desk.json("efficiency", desk.file("a.json", {"policy": policy, "workloads": jobs}))
    assert answer["workloads"][5]["reason"] == "neutral"


def test_utilisation_is_worked_out_from_what_a_run_did(desk: Desk) -> None:
    """1.2 million tokens/s of 10^10 parameters on 256 H100: 28.43 % of 989.4 TFLOP/s; recomputation makes it 37.90 % HFU.

    Phases: 40 % at a peak of 989.4 and 25 % at 1978.9, of equal seconds: (0.4 x 989.4 + 0.25 x 1978.9) / 2968.3.
    """
    run = {"tokens_per_second": 1_200_000, "active_params": "1e10", "gpus": 256, "dtype": "bf16"}
    run["accelerator"] = "NVIDIA-H100"
    bare = {"id": "a", "gpu_seconds": 72_000, "minutes": 60, "coverage": "1"}
    phases = [
        {"gpu_seconds": 3600, "mfu": "0.4", "hfu": "0.4", "dtype": "bf16"},
        {"gpu_seconds": 3600, "mfu": "0.25", "hfu": "0.5", "peak_tflops": "1978.9"},
    ]
    jobs = [
        {**bare, **run}, {**bare, **run, "id": "b", "recomputation": "full"},
        {**bare, "id": "c", "phases": phases, "accelerator": "NVIDIA-H100"},
    ]  # fmt: skip
    rows = desk.json("efficiency", desk.file("a.json", {"policy": POLICY, "workloads": jobs}))["workloads"]
    assert rows[0] == {
        "id": "a", "multiplier": "1", "reason": "neutral", "mfu": "0.284263189812", "hfu": "0.284263189812"
    }  # fmt: skip
    assert rows[1]["hfu"] == "0.379017586416"
    assert (rows[2]["mfu"], rows[2]["hfu"]) == ("0.299998315534", "0.466667789644")


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"tokens_per_second": 5}, "workloads[0].mfu: '0.30' stands beside tokens_per_second: give one of them"),
        ({"mfu": None, "hfu": None, "tokens_per_second": 5}, "workloads[0].active_params: is missing"),
        ({"phases": [{"gpu_seconds": 1}]}, "workloads[0].mfu: '0.30' stands beside phases: give one of them"),
        ({"mfu": None, "hfu": None, "phases": [{"mfu": "0.1", "dtype": "bf16", "accelerator": "abacus"}]},
         "workloads[0].phases[0].accelerator: 'abacus' has no known dense peak for 'bf16': give peak_tflops"),
        ({"mfu": None, "hfu": None, "phases": [{"mfu": "0.1", "dtype": "bf16"}]},
         "workloads[0].phases[0].gpu_seconds: is missing"),
    ],
)  # fmt: skip
def test_a_run_that_says_too_little_is_named(desk: Desk, changed: dict[str, Any], says: str) -> None:
    job = {name: value for name, value in workload("a", **changed).items() if value is not None}
    status, _, err = desk.run("efficiency", desk.file("a.json", {"policy": POLICY, "workloads": [job]}))
    assert status == 2
    assert [line for line in err if says in line], err


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"penalise_on": "gpu_util"}, "policy.penalise_on: 'gpu_util' must be hfu or mfu"),
        ({"form": "steps"}, "policy.form: 'steps' must be bands or linear"),
        ({"width": "10"}, "policy.width: '10' must be a number above 0 up to 1 (ratio): 10 % is 0.10"),
        ({"classes": [{"name": "a", "colour": "red"}]}, "policy.classes[0].colour: is no field of a class of workloads"),
        ({"classes": [{"name": "a", "mfu_above": "50"}]}, "policy.classes[0].mfu_above: '50' must be a number from 0 to 1"),
    ],
)
def test_a_bad_field_of_a_policy_is_named(desk: Desk, changed: dict[str, Any], says: str) -> None:
    status, _, err = desk.run(
        "efficiency", desk.file("a.json", {"policy": {**POLICY, **changed}, "workloads": [workload("a")]})
    )
    assert status == 2
    assert [line for line in err if says in line], err


def test_a_policy_may_begin_on_a_plain_date(desk: Desk) -> None:
    policy = POLICY | {"valid_from": "2026-10-01"}
    assert desk.json("efficiency", desk.file("a.json", {"policy": policy, "workloads": [workload("a")]}))


def test_efficiency_without_cliffs(desk: Desk) -> None:
    file = desk.file("a.json", {"policy": POLICY, "workloads": [workload("a", mfu="0.15", hfu="0.1999")]})
    assert desk.json("efficiency", file, "--linear")["workloads"][0]["multiplier"] == "1.0002"


@pytest.mark.parametrize(
    ("policy", "workloads", "says"),
    [
        ({"hfu_below": "20"}, [workload("a")], "policy.hfu_below: '20' must be a number from 0 to 1 (ratio): 20 % is 0.20"),
        ({"hfu_below": "0.6"}, [workload("a")], "policy.hfu_below: 0.6 must not be above mfu_above 0.50"),
        ({"valid_from": "2026-10-01T00"}, [workload("a")], "policy.valid_from: '2026-10-01T00' must be a time with"),
        ({}, [workload("a"), workload("a")], "workloads[1].id: 'a' is there twice"),
        ({}, [workload("a", mfu="n/a")], "workloads[0].mfu: 'n/a' must be a number"),
        ({}, [workload("a", mfy="1")], "workloads[0].mfy: is no field of a workload, did you mean mfu?"),
        ({}, [5], "workloads[0]: must be a mapping of the fields of a workload, not 5"),
        ({}, [], "workloads: is an empty list"),
    ],
)
def test_a_bad_efficiency_file(desk: Desk, policy: dict[str, str], workloads: list[Any], says: str) -> None:
    status, _, err = desk.run("efficiency", desk.file("a.json", {"policy": {**POLICY, **policy}, "workloads": workloads}))
    assert status == 2
    assert len(err) == 1
    assert says in err[0]


def test_a_training_plan_has_low_base_and_high(desk: Desk) -> None:
    answer = desk.json("training-plan", desk.file("a.json", PLAN))
    base = answer["base"]
    assert {name: answer[name] for name in base} == base
    assert base == {
        "flop": "600000000000000000000000", "gpu_hours": "435277.159248934485", "days": "70.845891804840",
        "main_cost": "4352771.59", "total_cost": "7573822.57", "kwh": "721471.891455108909",
        "kg_co2": "382812.985606080787",
    }  # fmt: skip
    for field in ("gpu_hours", "days", "main_cost", "total_cost", "kwh", "kg_co2"):
        assert Decimal(answer["low"][field]) <= Decimal(base[field]) <= Decimal(answer["high"][field])


STORE = {
    "storage": [
        {"tier": "hot", "tb_months": "200", "price_per_tb_month": "150"},
        {"tier": "warm", "byte_seconds": 3 * 10**12 * 1_339_200, "price_per_tb_month": "23"},
    ],
    "requests": [
        {"class": "GET", "count": 2_500_000_000, "price_per_1000": "0.0004"},
        {"class": "PUT", "count": 2_500_000_000, "price_per_1000": "0.005"},
    ],
    "month_seconds": 2_678_400,
}  # fmt: skip


def test_a_month_of_a_store_is_priced_by_tier_and_class(desk: Desk) -> None:
    """200 x 150; 3 TB over half of 31 days are 1.5 TB-months x 23; 2.5 million x 0.0004 and x 0.005."""
    path = desk.file("a.json", STORE)
    assert desk.json("storage", path) == {
        "lines": [
            {"kind": "storage", "name": "hot", "amount": "30000.00"},
            {"kind": "storage", "name": "warm", "amount": "34.50"},
            {"kind": "requests", "name": "GET", "amount": "1000.00"},
            {"kind": "requests", "name": "PUT", "amount": "12500.00"},
        ],
        "total": "43534.50",
    }
    assert desk.run("storage", path)[1].splitlines()[-1] == "total           43534.50"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"storage": None, "requests": None}, "storage: is missing, and so is requests: give at least one of them"),
        ({"month_seconds": None}, "storage[1].byte_seconds: needs month_seconds of the document"),
        ({"month_seconds": 31}, "month_seconds: 31 must be a whole number from 2419200 to 2764800 (seconds of the month)"),
        ({"storage": [{"tier": "a", "tb_months": 1, "byte_seconds": 1, "price_per_tb_month": 1}]},
         "storage[0].byte_seconds: stands beside tb_months: give one of them"),
        ({"storage": [{"tier": "a", "price_per_tb_month": 1}]},
         "storage[0].tb_months: is missing, must be a number from 0 to 1e9 (decimal TB over the whole month, 0.2 PB are"),
        ({"requests": [{"class": "GET", "count": "1.5", "price_per_1000": "1"}]},
         "requests[0].count: '1.5' must be a whole number from 0 to 1e18 (requests)"),
        ({"requests": {"GET": 1}}, "requests: {'GET': 1} must be a list"),
    ],
)  # fmt: skip
def test_a_bad_month_of_a_store_is_named(desk: Desk, changed: dict[str, Any], says: str) -> None:
    fields = {name: value for name, value in {**STORE, **changed}.items() if value is not None}
    status, _, err = desk.run("storage", desk.file("a.json", fields))
    assert status == 2
    assert [line for line in err if says in line], err


def test_a_plan_stores_by_tier_says_its_steps_and_what_its_flop_are_best_spent_on(desk: Desk) -> None:
    """70.8458918 days are 2.32918... months of 730 h; 1024 x 4096 tokens a step; 6e23 FLOP: N = sqrt(C / 120)."""
    bare = desk.json("training-plan", desk.file("a.json", PLAN))
    store = {name: STORE[name] for name in ("requests",)} | {"storage": STORE["storage"][:1]}  # type: ignore[index]
    told = desk.json("training-plan", desk.file("b.json", PLAN | store | {"sequences_per_step": 1024, "seq_len": 4096}))
    stored = Decimal(bare["days"]) * 24 / 730 * 30_000 + 13_500
    assert abs(Decimal(told["total_cost"]) - Decimal(bare["total_cost"]) - stored * Decimal("1.2")) < Decimal("0.01")
    assert told["optimizer_steps"] == 2_384_186
    assert bare["compute_optimal"] == {"active_params": "70710678119", "tokens": "1414213562373"}
    assert "optimizer_steps" not in bare


def test_contingency_may_be_a_share_of_the_total(desk: Desk) -> None:
    """1.45 / 0.8 = 1.8125 in place of 1.45 x 1.2 = 1.74."""
    told = desk.json("training-plan", desk.file("a.json", PLAN | {"contingency_method": "share-of-total"}))
    assert abs(Decimal(told["main_cost"]) * Decimal("1.8125") - Decimal(told["total_cost"])) < Decimal("0.01")
    status, _, err = desk.run("training-plan", desk.file("b.json", PLAN | {"contingency_method": "guess"}))
    assert (status, err[0].partition(": ")[2]) == (2, "contingency_method: 'guess' must be on-base or share-of-total")


def test_a_plan_with_layers_counts_attention(desk: Desk) -> None:
    layers = {"layers": 40, "model_width": 4608, "seq_len": 4096}
    full = desk.json("training-plan", desk.file("a.json", PLAN | layers))
    causal = desk.json("training-plan", desk.file("b.json", PLAN | layers | {"attention": "causal"}))
    assert int(full["flop"]) == 10**13 * (6 * 10**10 + 9_059_696_640)
    assert int(causal["flop"]) == 10**13 * (6 * 10**10 + 9_059_696_640 // 2)


def test_a_plan_may_give_its_own_range_and_peak(desk: Desk) -> None:
    ranges = {"mfu_low": "0.50", "mfu_high": "0.40", "goodput_low": "0.95", "goodput_high": "0.80"}
    own = PLAN | ranges | {"peak_tflops": "989.4"}
    answer = desk.json("training-plan", desk.file("a.json", own))
    ratios = {name: Decimal(answer[name]["gpu_hours"]) / Decimal(answer["base"]["gpu_hours"]) for name in ("low", "high")}
    assert round(ratios["low"], 9) == round(Decimal("0.387") / Decimal("0.475"), 9)
    assert round(ratios["high"], 9) == round(Decimal("0.387") / Decimal("0.32"), 9)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"mfu": "43"}, "mfu: '43' must be a number above 0 to below 1 (ratio): 55 % is 0.55"),
        ({"accelerator": "NVIDIA-X1"}, "accelerator: 'NVIDIA-X1' has no known dense peak for 'bf16': give peak_tflops"),
        ({"layers": 40}, "seq_len: is missing"),
        ({"overheads": {"data": "20"}}, "overheads.data: '20' must be a number from 0 to 10"),
        ({"overheads": ["0.2"]}, "overheads: must be a mapping"),
        ({"mfu_low": "0.3"}, "mfu_low: must be at least mfu"),
        ({"goodput_high": "0.95"}, "goodput_high: must be at most goodput"),
        ({"attention": "half"}, "attention: 'half' must be full or causal"),
        ({"total_parameters": "1e11"}, "total_parameters: is no field of a training plan, did you mean total_params?"),
    ],
)
def test_a_bad_training_plan(desk: Desk, changed: dict[str, Any], says: str) -> None:
    status, _, err = desk.run("training-plan", desk.file("a.json", {**PLAN, **changed}))
    assert status == 2
    assert says in err[0]


def test_tables_of_the_other_commands(desk: Desk) -> None:
    for arguments in (
        ("tokens", desk.file("a.json", load_test()), "--gpu-hour-cost", "10", *SLA),
        ("efficiency", desk.file("b.json", {"policy": POLICY, "workloads": [workload("a")]})),
        ("training-plan", desk.file("c.json", PLAN)),
    ):
        status, out, err = desk.run(*arguments)
        assert (status, err) == (0, [])
        assert len(out.splitlines()) > 1


@pytest.mark.parametrize(
    ("command", "content", "fields"),
    [
        (("efficiency",), {"policy": {}, "workloads": [{}]}, 4 + 3),
        (("efficiency",), {}, 2),
        (("training-plan",), {}, 10),
        (("tokens", "--gpu-hour-cost", "10", *SLA), {**load_test(), "runs": [{}]}, 8),
        (("tokens", "--gpu-hour-cost", "10", *SLA), {}, 3),
    ],
)
def test_an_empty_mapping_names_each_field_that_is_missing(
    desk: Desk, command: tuple[str, ...], content: Any, fields: int
) -> None:
    status, _, err = desk.run(*command, desk.file("a.json", content))
    assert status == 2
    assert len(err) == fields
    assert all(": is missing" in line or ": must be a mapping" in line for line in err)


def test_output_that_cannot_be_written_is_one_line() -> None:
    command = [sys.executable, "-m", "pricing", "gpu-hour", "-"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, input=json.dumps(SHEET).encode(), stdout=full, stderr=subprocess.PIPE, check=False, timeout=60
        )
    assert (done.returncode, done.stderr) == (1, b"standard output: No space left on device\n")


def test_as_a_process_it_reads_standard_input_and_knows_no_django() -> None:
    code = "import sys; from pricing.__main__ import main; code = main(); assert 'django' not in sys.modules; sys.exit(code)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, "gpu-hour", "-", "--json"], input=json.dumps(SHEET).encode(),
        capture_output=True, check=False, timeout=60, env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout) == GPU_HOUR


def test_charts_come_beside_the_keys_of_the_contract_and_as_tables(desk: Desk) -> None:
    sheet = desk.file("a.json", {**SHEET, "sold_share": "0.65"})
    told = desk.json("gpu-hour", sheet, "--charts")
    plain = desk.json("gpu-hour", sheet)
    assert {name: value for name, value in told.items() if name != "charts"} == plain
    charts = told["charts"]
    assert charts["waterfall"][-1]["name"] == "markup"
    assert charts["sensitivity"][0]["field"] == "sold_share"
    assert charts["models"]["simple"]["price_per_gpu_hour"] == "11.5861"
    # F 8.329097103311, V 1.326, P = (F / 0.65 + V) x 1.2 = 16.9680: F / (P - V) = 0.53248
    assert charts["break_even_sold_share"] == "0.5325"
    status, out, _ = desk.run("gpu-hour", sheet, "--charts")
    assert status == 0
    lines = out.splitlines()
    assert lines[-1] == "the price recovers its cost from a sold share of 0.5325 on"
    assert any(line.startswith("sold_share") and "0.585" in line and "0.715" in line for line in lines)
