"""`gpu-hour SHEET`: cost sheet -> every component, cost and price of a GPU-hour; with `--charts` also what moves it."""

import argparse

from pricing.commands.files import OK, problems_of, read_document, table, write_json, write_lines
from pricing.money import exact_decimal
from pricing.tco import CostSheet, GpuHourCost, cost_of_gpu_hour, parse_cost_sheet
from pricing.what_if import chart_data, price_text, sensitivity

HELP = "cost sheet (JSON or YAML) -> every component, cost and price per GPU-hour"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("sheet", metavar="SHEET", help="cost sheet, JSON or YAML, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")
    charts = "also the waterfall, what each input moves (one tenth down and up), break-even and the simple model"
    parser.add_argument("--charts", action="store_true", help=charts)


def run(arguments: argparse.Namespace) -> int:
    """Price a sheet."""
    document = read_document(arguments.sheet)
    with problems_of(document):
        sheet = parse_cost_sheet(document.value)
        cost = cost_of_gpu_hour(sheet)
    if arguments.json:
        write_json({**cost.as_dict(), **({"charts": chart_data(sheet)} if arguments.charts else {})})
    else:
        write_lines([*_lines(cost), *(_what_if_lines(sheet) if arguments.charts else [])])
    return OK


def _lines(cost: GpuHourCost) -> list[str]:
    shown = cost.as_dict()
    rows = [("component", "per GPU-hour", "share", "from")]
    for part, row in zip(cost.components, shown["components"], strict=True):
        share = exact_decimal(part.share_of(cost.cost) * 100, 2)
        rows.append((part.name, row["cost_per_gpu_hour"], f"{share} %", ", ".join(part.inputs)))
    rows.append(("cost", shown["cost_per_gpu_hour"], "100.00 %" if cost.cost else "0.00 %", ""))
    markup = exact_decimal(cost.markup * 100, 2)
    rows.append(("price", shown["price_per_gpu_hour"], "", f"cost + {markup} % markup, the list price"))
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
