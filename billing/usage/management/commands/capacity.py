"""`manage.py capacity plan.yaml`"""

from argparse import ArgumentParser
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from billing.tenancy.app_command import DONE, AppCommand, fail
from billing.usage.capacity import Plan, PlanError, figures, plan_read, shown


class Command(AppCommand):
    help = "The machines that so many requests a day need: formulas over a plan and measured rates; it asks no database."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="plan.yaml")
        self.take(parser, "json")

    def run(self, *, file: Path, json: bool, **_: Any) -> int:
        try:
            plan = plan_read(yaml.safe_load(file.read_text(encoding="utf-8")))
        except OSError as error:
            fail(f"{file}: {error.strerror or error}")
        except (UnicodeDecodeError, yaml.YAMLError, PlanError) as error:
            fail(f"{file}: {error}")
        if json:
            self.print_json(_as_json(plan))
        else:
            for figure in figures(plan):
                value = f"{shown(figure.value):>16} {figure.unit:<10}"
                self.say(f"{figure.name:<30} {value} {figure.basis:<10} {figure.formula}")
        return DONE


def _as_json(plan: Plan) -> dict[str, Any]:
    return {
        "plan": {name: shown(value).replace(",", "") for name, value in plan.fields.items()},
        "rates": {name: asdict(rate) | {"value": float(rate.value)} for name, rate in plan.rates.items()},
        "figures": [asdict(figure) | {"value": float(figure.value)} for figure in figures(plan)],
    }
