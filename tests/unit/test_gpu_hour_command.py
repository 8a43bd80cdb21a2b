"""`python -m pricing gpu-hour`: the JSON of the contract, the list that it makes, and its charts."""

from decimal import Decimal

import pytest
import yaml

from tests.golden.registry import SHEET
from tests.pricing_cli import GPU_HOUR, Desk, desk

__all__ = ["desk"]


def test_gpu_hour_gives_the_json_of_the_contract_to_the_letter(desk: Desk) -> None:
    numbers = {name: value if name in ("accelerator", "currency") else Decimal(value) for name, value in SHEET.items()}
    plain = "{" + ", ".join(f'"{k}": "{v}"' if isinstance(v, str) else f'"{k}": {v}' for k, v in numbers.items()) + "}"
    for name, content in (("a.json", SHEET), ("b.json", plain), ("c.yaml", yaml.safe_dump(SHEET)), ("d", plain)):
        assert desk.json("gpu-hour", desk.file(name, content)) == GPU_HOUR


def test_grouped_digits_are_no_number(desk: Desk) -> None:
    """`200_000` may be meant, `1_000` may be a slip for 1.000: neither is guessed, in text and in YAML alike."""
    plain = yaml.safe_dump({**SHEET, "gpu_price": "X"}).replace("X", "200_000")
    for name, content in (("a.json", {**SHEET, "gpu_price": "200_000"}), ("b.yaml", plain)):
        (complaint,) = desk.refused("gpu-hour", desk.file(name, content))
        assert "gpu_price: '200_000' must be a number" in complaint


LISTED = (
    "--list-currency", "EUR", "--exchange-rate", "7.1234", "--rate-date", "2026-10-01", "--actual-cost", "10000000",
    "--recovered", "9400000", "--planned-gpu-hours", "1200000", "--reserved-ratio", "0.80", "--preemptible-ratio", "0.05",
)  # fmt: skip


def test_the_list_has_tiers_in_its_currency_with_the_true_up_of_last_year(desk: Desk) -> None:
    """(9.655097103311 x 1.2 + 0.5) x 7.1234 = 86.09424...; 80 % of it; and no less than 1.326 x 7.1234 of power."""
    answer = desk.json("gpu-hour", desk.file("a.json", SHEET), *LISTED)
    assert answer.pop("list_prices") == {
        "currency": "EUR", "exchange_rate": "7.12340000", "rate_date": "2026-10-01",
        "true_up_per_gpu_hour": "0.500000000000", "on_demand": "86.0942", "reserved": "68.8754", "preemptible": "9.4456",
    }  # fmt: skip
    assert answer == GPU_HOUR
    status, out, _ = desk.run("gpu-hour", desk.file("a.json", SHEET), "--reserved-ratio", "0.80")
    assert (status, out.splitlines()[-3:]) == (
        0, ["currency         CNY", "on_demand    11.5861", "reserved      9.2689"]
    )  # fmt: skip


def test_the_sheet_keeps_what_the_list_is_made_with_and_an_option_stands_in_its_place(desk: Desk) -> None:
    """11.586116523973 x 7.1234 = 82.53254...; at 8 it is 92.68893..."""
    terms = {"list_currency": "USD", "exchange_rate": "7.1234", "rate_date": "2026-10-01", "reserved_ratio": "0.5"}
    path = desk.file("a.json", {**SHEET, **terms, "carbon_kg_per_kwh": "0.5306"})
    answer = desk.json("gpu-hour", path)
    assert answer["list_prices"] == {
        "currency": "USD", "exchange_rate": "7.12340000", "rate_date": "2026-10-01", "on_demand": "82.5325",
        "reserved": "41.2663",
    }  # fmt: skip
    assert answer["footprint"] == {"kwh": "1.657500000000", "kg_operational": "0.879469500000"}
    assert answer["price_per_gpu_hour"] == "11.5861"
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
        (("--list-currency", "CNY", *LISTED[2:6]), "--list-currency: 'CNY' must differ from currency: the sheet is in it"),
    ],
)
def test_a_bad_option_of_the_list_is_named(desk: Desk, options: tuple[str, ...], says: str) -> None:
    err = desk.refused("gpu-hour", desk.file("a.json", SHEET), *options)
    assert says in err[-1]


def test_charts_come_beside_the_keys_of_the_contract_and_as_tables(desk: Desk) -> None:
    sheet = desk.file("a.json", {**SHEET, "sold_share": "0.65"})
    answer = desk.json("gpu-hour", sheet, "--charts")
    plain = desk.json("gpu-hour", sheet)
    assert {name: value for name, value in answer.items() if name != "charts"} == plain
    charts = answer["charts"]
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
