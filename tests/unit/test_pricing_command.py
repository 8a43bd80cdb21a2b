"""`python -m pricing`: what the contract promises of output, exit status and complaints of every command."""

import json
from typing import Any

import pytest

from tests.golden.registry import SHEET
from tests.pricing_cli import GPU_HOUR, PLAN, POLICY, SLA, Desk, desk, load_test, workload

__all__ = ["desk"]


def test_a_yaml_number_is_read_by_its_text(desk: Desk) -> None:
    text = "\n".join(f"{name}: {value}" for name, value in SHEET.items())
    sheet = desk.file("a.yaml", text.replace("gpu_price: 200000", "gpu_price: 200000.00000000000000000001"))
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
    err = desk.refused("gpu-hour", sheet, "--json")
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
    (complaint,) = desk.refused("gpu-hour", path)
    assert complaint.startswith(path)
    assert says in complaint


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
    err = desk.refused(*command, desk.file("a.json", content))
    assert len(err) == fields
    assert all(": is missing" in line or ": must be a mapping" in line for line in err)
