"""Command `training-plan FILE`: GPU-hours, days, cost, energy and CO2 of a training run: low, base, high."""

import argparse

from pricing.commands.files import OK, problems_of, read_document, table, write_json, write_lines
from pricing.training_plan import parse_training_plan

MARKS = {True: "ok", False: "!!", None: "??"}
HELP = "GPU-hours, days, cost, energy and CO2 of a training run: low, base, high"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of the command."""
    parser.add_argument("file", metavar="FILE", help="training plan, JSON or YAML, or - for standard input")
    parser.add_argument("--json", action="store_true", help="one JSON document instead of a table")


def run(arguments: argparse.Namespace) -> int:
    """Estimate a plan and write it. In JSON the fields of the base case are also at the top level."""
    document = read_document(arguments.file)
    with problems_of(document):
        plan = parse_training_plan(document.value)
    cases, checks = plan.cases(), plan.checks()
    shown = {name: case.as_dict() for name, case in cases.items()}
    if arguments.json:
        shown_checks = [{"name": check.name, "holds": check.holds, "text": str(check.text)} for check in checks]
        params, tokens = plan.compute_optimal()
        best = {"active_params": str(params), "tokens": str(tokens)}
        steps = {} if plan.steps is None else {"optimizer_steps": plan.steps}
        write_json({**shown["base"], **shown, "checks": shown_checks, "compute_optimal": best, **steps})
    else:
        rows = [(field, *(shown[name][field] for name in shown)) for field in shown["base"]]
        write_lines(table([("", *shown), *rows]))
        params, tokens = plan.compute_optimal()
        write_lines(["", f"the same FLOP are best spent on {params} parameters and {tokens} tokens"])
        if plan.steps is not None:
            write_lines([f"{plan.steps} optimizer steps"])
        write_lines(["", *(f"{MARKS[check.holds]} {check.name}: {check.text}" for check in checks)])
    return OK
