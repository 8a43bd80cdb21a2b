"""`gpu-hour SHEET`: cost sheet -> every component, cost and price of a GPU-hour; with `--charts` also what moves it."""

import argparse
from datetime import date
from fractions import Fraction
from typing import Any, Final

from pricing.adjustments import AdjustmentError, list_prices, true_up
from pricing.commands.files import OK, CommandError, number_in, problems_of, read_document, table, write_json, write_lines
from pricing.cost_sheet import CURRENCY
from pricing.fields import Bound
from pricing.money import exact_decimal
from pricing.tco import CostSheet, GpuHourCost, cost_of_gpu_hour, parse_cost_sheet
from pricing.what_if import chart_data, price_text, sensitivity

RATE: Final = Bound("0", "1e6", "billing currency per unit of the sheet's", above_low=True)
TIER: Final = Bound("0", "1", "ratio of the on-demand price", "80 % is 0.80", above_low=True)
MONEY: Final = Bound("0", "1e15", "currency of the sheet")
HOURS: Final = Bound("0", "1e12", "GPU-hours", above_low=True)
HELP = "cost sheet (JSON or YAML) -> every component, cost and price per GPU-hour"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("sheet", metavar="SHEET", help="cost sheet, JSON or YAML, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    charts = "also the waterfall, what each input moves (one tenth down and up), break-even and the simple model"
    parser.add_argument("--charts", action="store_true", help=charts)
    listed = parser.add_argument_group("price list", "what stands in the list: other currency, tiers, last year's true-up")
    listed.add_argument("--list-currency", metavar="CUR", type=_currency, help="with --exchange-rate, --rate-date")
    listed.add_argument("--exchange-rate", type=number_in(RATE), help="list currency per unit of the sheet's currency")
    listed.add_argument("--rate-date", type=_day, help="day of the rate, YYYY-MM-DD")
    listed.add_argument("--reserved-ratio", type=number_in(TIER), help="reserved over on-demand price")
    ends = "pre-emptible over on-demand price; never below the cost of its power"
    listed.add_argument("--preemptible-ratio", type=number_in(TIER), help=ends)
    listed.add_argument("--actual-cost", type=number_in(MONEY), help="of last year; with --recovered, --planned-gpu-hours")
    listed.add_argument("--recovered", type=number_in(MONEY), help="what last year's prices recovered of it")
    listed.add_argument("--planned-gpu-hours", type=number_in(HOURS), help="GPU-hours over which the difference is spread")


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} must be a day such as 2026-10-01") from error


def _currency(text: str) -> str:
    if not CURRENCY.match(text):
        raise argparse.ArgumentTypeError(f"{text!r} must be three capital letters such as CNY")
    return text


def run(arguments: argparse.Namespace) -> int:
    """Price a sheet."""
    document = read_document(arguments.sheet)
    with problems_of(document):
        sheet = parse_cost_sheet(document.value)
        cost = cost_of_gpu_hour(sheet)
    listed = _listed(cost, arguments)
    if arguments.json:
        extra = {"charts": chart_data(sheet)} if arguments.charts else {}
        write_json({**cost.as_dict(), **extra, **({"list_prices": listed} if listed else {})})
    else:
        ends = "" if listed else ", the list price"
        write_lines([*_lines(cost, ends), *_listed_lines(listed), *(_what_if_lines(sheet) if arguments.charts else [])])
    return OK


def _together(arguments: argparse.Namespace, *names: str) -> bool:
    """Whether all of these options were given.  Raises CommandError where only some were."""
    missing = [name for name in names if getattr(arguments, name) is None]
    if missing and len(missing) < len(names):
        given = next(name for name in names if name not in missing)
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise CommandError([f"{flags}: missing, but --{given.replace('_', '-')} is given"])
    return not missing


def _listed(cost: GpuHourCost, arguments: argparse.Namespace) -> dict[str, Any]:
    """The list prices that were asked for, with what they were made from; empty where none were."""
    converted = _together(arguments, "list_currency", "exchange_rate", "rate_date")
    trued = _together(arguments, "actual_cost", "recovered", "planned_gpu_hours")
    if not (converted or trued or arguments.reserved_ratio or arguments.preemptible_ratio):
        return {}
    rate = arguments.exchange_rate if converted else Fraction(1)
    change = true_up(arguments.actual_cost, arguments.recovered, arguments.planned_gpu_hours) if trued else Fraction(0)
    power = sum((part.cost_per_gpu_hour for part in cost.components if part.name == "power"), Fraction(0))
    try:
        prices = list_prices(
            cost.cost * (1 + cost.markup), power, true_up=change, exchange_rate=rate,
            reserved=arguments.reserved_ratio, preemptible=arguments.preemptible_ratio,
        )  # fmt: skip
    except AdjustmentError as error:
        raise CommandError([f"--recovered: {error}"]) from error
    told: dict[str, Any] = {"currency": arguments.list_currency if converted else cost.currency}
    if converted:
        told |= {"exchange_rate": exact_decimal(rate, 8), "rate_date": arguments.rate_date.isoformat()}
    if trued:
        told["true_up_per_gpu_hour"] = exact_decimal(change)
    return told | {name: format(price, "f") for name, price in prices.items()}


def _listed_lines(listed: dict[str, Any]) -> list[str]:
    return ["", *table([("in the list", ""), *listed.items()])] if listed else []


def _lines(cost: GpuHourCost, ends: str) -> list[str]:
    shown = cost.as_dict()
    rows = [("component", "per GPU-hour", "share", "from")]
    for part, row in zip(cost.components, shown["components"], strict=True):
        share = exact_decimal(part.share_of(cost.cost) * 100, 2)
        rows.append((part.name, row["cost_per_gpu_hour"], f"{share} %", ", ".join(part.inputs)))
    rows.append(("cost", shown["cost_per_gpu_hour"], "100.00 %" if cost.cost else "0.00 %", ""))
    markup = exact_decimal(cost.markup * 100, 2)
    rows.append(("price", shown["price_per_gpu_hour"], "", f"cost + {markup} % markup{ends}"))
    return [f"{cost.accelerator}, {cost.currency} per GPU-hour", "", *table(rows, left=(0, 3))]


def _what_if_lines(sheet: CostSheet) -> list[str]:
    """What each input moves, widest first; the simple model beside the complete one; break-even."""
    rows = [("input", "low", "high", "price at low", "price at high")]
    for swing in sensitivity(sheet):
        low, high = (exact_decimal(value, 4).rstrip("0").rstrip(".") for value in (swing.low, swing.high))
        rows.append((swing.field, low, high, price_text(swing.price_at_low), price_text(swing.price_at_high)))
    told = chart_data(sheet)
    models = [("model", "cost", "price")]
    models += [(name, one["cost_per_gpu_hour"], one["price_per_gpu_hour"]) for name, one in told["models"].items()]
    share = told["break_even_sold_share"]
    ends = f"the price recovers its cost from a sold share of {share} on" if share else "the price never pays its energy"
    return ["", *table(rows), "", *table(models), "", ends]
