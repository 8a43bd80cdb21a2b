"""Command `gpu-hour SHEET`: components, cost and price of a GPU-hour; with `--charts` also its sensitivity."""

import argparse
from dataclasses import replace
from datetime import date
from typing import Any

from pricing.commands.files import OK, CommandError, number_in, problems_of, read_document, table, write_json, write_lines
from pricing.listing import CONVERSION, LAST_YEAR, NUMBERS, AdjustmentError, Listing
from pricing.money import CURRENCY, exact_decimal
from pricing.number_text import short_text
from pricing.tco import CostSheet, GpuHourCost, cost_of_gpu_hour, parse_cost_sheet
from pricing.what_if import chart_data, price_text, sensitivity

HELP = "cost sheet (JSON or YAML) -> every component, cost and price per GPU-hour"

LISTED = {
    "exchange_rate": "list currency per unit of the sheet's currency",
    "reserved_ratio": "reserved over on-demand price",
    "preemptible_ratio": "pre-emptible over on-demand price; never below the cost of its power",
    "actual_cost": "of last year; with --recovered, --planned-gpu-hours",
    "recovered": "what last year's prices recovered of it",
    "planned_gpu_hours": "GPU-hours over which the difference is spread",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("sheet", metavar="SHEET", help="cost sheet, JSON or YAML, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    charts = "also the waterfall, what each input moves (one tenth down and up), break-even and the simple model"
    parser.add_argument("--charts", action="store_true", help=charts)
    listed = parser.add_argument_group("price list", "other currency, tiers, last year's true-up; else as the sheet says")
    listed.add_argument("--list-currency", metavar="CUR", type=_currency, help="with --exchange-rate, --rate-date")
    listed.add_argument("--rate-date", type=_day, help="day of the rate, YYYY-MM-DD")
    for name, text in LISTED.items():
        listed.add_argument(f"--{name.replace('_', '-')}", type=number_in(NUMBERS[name]), help=text)


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
    """Calculate the price of a sheet and write it."""
    document = read_document(arguments.sheet)
    with problems_of(document):
        sheet = parse_cost_sheet(document.value)
    cost = cost_of_gpu_hour(replace(sheet, listing=_listing(sheet, arguments)))
    try:
        shown = cost.as_dict()
    except AdjustmentError as error:
        raise CommandError([f"--recovered: {error}"]) from error
    if arguments.json:
        write_json({**shown, **({"charts": chart_data(sheet)} if arguments.charts else {})})
    else:
        write_lines([*_lines(cost, shown), *(_what_if_lines(sheet) if arguments.charts else [])])
    return OK


def _listing(sheet: CostSheet, arguments: argparse.Namespace) -> Listing:
    """Return the listing terms of the sheet, replaced by options.  Raises CommandError for contradicting options."""
    for names in (CONVERSION, LAST_YEAR):
        missing = [name for name in names if getattr(arguments, name) is None]
        if missing and len(missing) < len(names):
            given = next(name for name in names if name not in missing)
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
            raise CommandError([f"{flags}: missing, but --{given.replace('_', '-')} is given"])
    if arguments.list_currency == sheet.currency:
        raise CommandError([f"--list-currency: {sheet.currency!r} must differ from currency: the sheet is in it already"])
    asked = {name: getattr(arguments, name) for name in NUMBERS if getattr(arguments, name) is not None}
    numbers = {**sheet.listing.numbers, **asked}
    if arguments.list_currency is not None:
        return Listing(arguments.list_currency, arguments.rate_date, numbers)
    return replace(sheet.listing, numbers=numbers)


def _lines(cost: GpuHourCost, shown: dict[str, Any]) -> list[str]:
    rows = [("component", "per GPU-hour", "share", "from")]
    for part, row in zip(cost.components, shown["components"], strict=True):
        share = exact_decimal(part.share_of(cost.cost) * 100, 2)
        rows.append((part.name, row["cost_per_gpu_hour"], f"{share} %", ", ".join(part.inputs)))
    rows.append(("cost", shown["cost_per_gpu_hour"], "100.00 %" if cost.cost else "0.00 %", ""))
    markup = exact_decimal(cost.markup * 100, 2)
    ends = "" if cost.listing else ", the list price"
    rows.append(("price", shown["price_per_gpu_hour"], "", f"cost + {markup} % markup{ends}"))
    lines = [f"{cost.accelerator}, {cost.currency} per GPU-hour", "", *table(rows, left=(0, 3))]
    for section, title in (("list_prices", "in the list"), ("footprint", "of a used GPU-hour")):
        if section in shown:
            lines += ["", *table([(title, ""), *shown[section].items()])]
    return lines


def _what_if_lines(sheet: CostSheet) -> list[str]:
    """Return lines of sensitivity, widest first; of the simple and the complete model; of break-even."""
    rows = [("input", "low", "high", "price at low", "price at high")]
    for swing in sensitivity(sheet):
        low, high = (short_text(value, 4) for value in (swing.low, swing.high))
        rows.append((swing.field, low, high, price_text(swing.price_at_low), price_text(swing.price_at_high)))
    data = chart_data(sheet)
    models = [("model", "cost", "price")]
    models += [(name, one["cost_per_gpu_hour"], one["price_per_gpu_hour"]) for name, one in data["models"].items()]
    share = data["break_even_sold_share"]
    ends = f"the price recovers its cost from a sold share of {share} on" if share else "the price never pays its energy"
    return ["", *table(rows), "", *table(models), "", ends]
