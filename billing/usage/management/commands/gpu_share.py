"""`manage.py gpu_share` lists usage of unknown share; `gpu_share --declare CLUSTER RESOURCE ...` decides what it is."""

from argparse import ArgumentParser
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils import timezone

from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.usage.models import UnknownShare
from billing.usage.services import DeclarationError, share_declare


class Command(AppCommand):
    help = "List usage whose share of a device nobody knows, or declare what a unit of a resource is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--declare", nargs=2, metavar=("CLUSTER", "RESOURCE"), help="say what a unit of it is")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--fraction", metavar="0.25", help="of a physical device that a unit is")
        what.add_argument("--no-accelerator", action="store_true", help="it is none, such as a network card")
        parser.add_argument("--accelerator", default="", metavar="NAME", help="only where this accelerator is reported")
        parser.add_argument("--why", default="", metavar="TEXT", help="only where this is not known, as it is listed")
        parser.add_argument("--product", default="", metavar="NAME", help="the accelerator that it is, if not as reported")
        parser.add_argument("--reason", default="", help="why; needed to declare")
        self.take(parser, "by", "json")

    def run(
        self, *, declare: list[str] | None, fraction: str | None, no_accelerator: bool, accelerator: str, why: str,
        product: str, reason: str, by: str | None, json: bool, **_: Any,
    ) -> int:  # fmt: skip
        if declare is None:
            return self._list(as_json=json)
        if (fraction is None) is not no_accelerator:
            fail("--declare needs --fraction or --no-accelerator")
        try:
            settled = share_declare(
                cluster=declare[0], resource=declare[1], device_fraction=_decimal(fraction), accelerator=accelerator,
                why=why, product=product, actor=operator(by, Right.OPERATE), reason=reason, now=timezone.now(),
            )  # fmt: skip
        except DeclarationError as error:
            fail(str(error))
        if json:
            self.print_json({"cluster": declare[0], "resource": declare[1], "settled": settled})
            return DONE
        self.say(f"declared: {declare[0]}/{declare[1]}; {settled} reports settled")
        return DONE

    def _list(self, *, as_json: bool) -> int:
        names = ("cluster", "namespace", "pod", "resource", "quantity", "accelerator", "why", "started_at", "until")
        rows = UnknownShare.objects.filter(settled="").order_by("cluster", "resource", "why", "allocation_id")
        if as_json:
            self.print_json({"unknown": list(rows.values("allocation_id", *names))})
            return DONE
        for row in rows:
            what = f"{row.quantity} {row.resource} on {row.accelerator}"
            self.say(f"{row.cluster}/{row.namespace}/{row.pod} {row.started_at:%Y-%m-%d %H:%M} {what}: {row.why}")
        self.say(f"{rows.count()} reports of unknown share")
        return DONE


def _decimal(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        fail(f"--fraction {text!r}: is not a decimal")
