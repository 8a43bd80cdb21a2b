"""`manage.py gpu_share` lists usage of unknown share; `gpu_share --declare CLUSTER RESOURCE ...` decides what it is."""

from argparse import ArgumentParser
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils import timezone

from billing.tenancy.access import Right
from billing.tenancy.app_command import DONE, AppCommand, fail, operator
from billing.tenancy.selectors import billing_setup
from billing.usage.models import ShareCorrection, UnknownShare
from billing.usage.services import DeclarationError, share_correct, share_declare
from metering.intervals import declared_instant


class Command(AppCommand):
    help = "List usage whose share of a device nobody knows, or declare what a unit of a resource is."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--declare", nargs=2, metavar=("CLUSTER", "RESOURCE"), help="say what a unit of it is")
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--fraction", metavar="0.25", help="of a physical device that a unit is")
        what.add_argument("--no-accelerator", action="store_true", help="it is none, such as a network card")
        parser.add_argument(
            "--from", dest="valid_from", metavar="INSTANT",
            help="correct from then on a share that is reported (RFC 3339, or a date of the billing zone)",
        )  # fmt: skip
        parser.add_argument("--accelerator", default="", metavar="NAME", help="only where this accelerator is reported")
        parser.add_argument("--why", default="", metavar="TEXT", help="only where this is not known, as it is listed")
        parser.add_argument("--product", default="", metavar="NAME", help="the accelerator that it is, if not as reported")
        parser.add_argument("--reason", default="", help="why; needed to declare")
        self.take(parser, "by", "json")

    def run(
        self, *, declare: list[str] | None, fraction: str | None, no_accelerator: bool, accelerator: str, why: str,
        product: str, reason: str, by: str | None, json: bool, valid_from: str | None = None, **_: Any,
    ) -> int:  # fmt: skip
        if declare is None:
            return self._list(as_json=json)
        if (fraction is None) is not no_accelerator:
            fail("--declare needs --fraction or --no-accelerator")
        if valid_from is not None:
            return self._correct(declare, _decimal(fraction), valid_from, accelerator, product or why, reason, by, json)
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

    def _correct(
        self, of: list[str], fraction: Decimal | None, valid_from: str, accelerator: str, other: str, reason: str,
        by: str | None, as_json: bool,
    ) -> int:  # fmt: skip
        if fraction is None or other:
            fail("--from goes with --fraction, and without --why and --product")
        try:
            at = declared_instant(valid_from, billing_setup().zone)
        except ValueError as error:
            fail(f"--from {valid_from!r}: {error}")
        try:
            changed = share_correct(
                cluster=of[0], resource=of[1], device_fraction=fraction, valid_from=at, accelerator=accelerator,
                actor=operator(by, Right.OPERATE), reason=reason,
            )  # fmt: skip
        except DeclarationError as error:
            fail(str(error))
        if as_json:
            self.print_json({"cluster": of[0], "resource": of[1], "valid_from": at.isoformat(), "changed": changed})
            return DONE
        self.say(f"corrected: {of[0]}/{of[1]} from {at.isoformat()}; {changed} allocations changed")
        return DONE

    def _list(self, *, as_json: bool) -> int:
        names = ("cluster", "namespace", "pod", "resource", "quantity", "accelerator", "why", "started_at", "until")
        rows = UnknownShare.objects.filter(settled="").order_by("cluster", "resource", "why", "allocation_id")
        if as_json:
            self.print_json({"unknown": list(rows.values("allocation_id", *names))})
            return DONE
        for correction in ShareCorrection.objects.all():
            of = f" on {correction.accelerator}" if correction.accelerator else ""
            self.say(
                f"{correction.cluster}/{correction.resource}{of}: {correction.device_fraction.normalize():f} from "
                f"{correction.valid_from.isoformat()} by {correction.declared_by}: {correction.reason}"
            )
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
