"""`gpu-hour SHEET`: cost sheet -> every component, cost and price of a GPU-hour."""

import argparse

from pricing.commands.files import OK, problems_of, read_document, table, write_json, write_lines
from pricing.money import exact_decimal
from pricing.tco import GpuHourCost, cost_of_gpu_hour, parse_cost_sheet

HELP = "cost sheet (JSON or YAML) -> every component, cost and price per GPU-hour"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("sheet", metavar="SHEET", help="cost sheet, JSON or YAML, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Price a sheet."""
    document = read_document(arguments.sheet)
    with problems_of(document):
        cost = cost_of_gpu_hour(parse_cost_sheet(document.value))
    if arguments.json:
        write_json(cost.as_dict())
    else:
        write_lines(_lines(cost))
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
