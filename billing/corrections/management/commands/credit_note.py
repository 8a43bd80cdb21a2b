"""Command `manage.py credit_note draft|sla|approve|issue|void|list`."""

from argparse import ArgumentParser, ArgumentTypeError
from decimal import Decimal, InvalidOperation
from typing import Any

from django.utils import timezone

from billing.corrections.services.corrections import (
    LineCredit,
    Wanted,
    correction_approve,
    correction_issue,
    correction_void,
    credit_note_draft,
)
from billing.corrections.services.sla import LostWork, sla_credit_draft
from billing.invoices.models import Correction
from billing.invoices.selectors import correction_as_dict, corrections_all
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, approver, operator


def decimal(text: str) -> Decimal:
    """Parse a decimal of the command line."""
    try:
        value = Decimal(text)
    except InvalidOperation as error:
        raise ArgumentTypeError(f"{text!r} is not a decimal") from error
    if not value.is_finite():
        raise ArgumentTypeError(f"{text!r} is not a number")
    return value


def line(text: str) -> tuple[int, Decimal | None]:
    """Parse `3` for the whole of line 3, `3=50.00` for 50.00 of it."""
    position, _, amount = text.partition("=")
    if not position.isdecimal():
        raise ArgumentTypeError(f"{text!r} must be a position such as 3, or 3=50.00")
    return int(position), decimal(amount) if amount else None


class Command(AppCommand):
    help = "Correct an issued document: credit its lines and, where something else was due, bill them again."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="draft|sla|approve|issue|void|list")
        self._add_draft(actions.add_parser("draft", help="ask for a correction; somebody else approves it"))
        self._add_sla(actions.add_parser("sla", help="ask for a credit of work that a fault of the platform lost"))
        for action in ("approve", "issue", "void"):
            chosen = actions.add_parser(action, help=f"{action} a correction")
            chosen.add_argument("id", type=int, help="as `draft` and `list` show it")
            if action == "void":
                chosen.add_argument("--reason", required=True, help="why it is dropped")
            self.take(chosen, "by", "json")
        self.take(actions.add_parser("list", help="all corrections, the newest first"), "json")

    def _add_draft(self, parser: ArgumentParser) -> None:
        parser.add_argument("number", help="the issued invoice or rebill")
        parser.add_argument(
            "--line", type=line, action="append", required=True, metavar="N[=AMOUNT]", help="a line, or an amount of it"
        )
        parser.add_argument("--rebill-price", type=decimal, help="bill the whole lines again at this price")
        parser.add_argument("--rebill-quantity", type=decimal, help="bill the whole lines again with this quantity")
        parser.add_argument("--code", required=True, choices=Correction.Reason.values)
        parser.add_argument("--reason", required=True, help="what was wrong, in words")
        parser.add_argument("--evidence", default="", help="ticket, incident or page that shows it")
        self.take(parser, "by", "json")

    def _add_sla(self, parser: ArgumentParser) -> None:
        parser.add_argument("number", help="the issued invoice or rebill")
        parser.add_argument("--line", type=int, required=True, help="the line of GPU hours")
        parser.add_argument("--gpus", type=int, required=True, help="devices that lost their work")
        parser.add_argument("--lost-hours", type=decimal, required=True, help="since the last checkpoint that survived")
        parser.add_argument("--cap-hours", type=decimal, required=True, help="one checkpoint interval: more is not credited")
        parser.add_argument("--reason", required=True, help="which fault, in words")
        parser.add_argument("--evidence", required=True, help="the incident")
        self.take(parser, "by", "json")

    def run(self, *, action: str, **options: Any) -> int:
        if action == "list":
            return self._list(json=options["json"])
        actor = (approver if action == "approve" else operator)(options["by"], Right.CLOSE, Right.APPROVE)
        correction = getattr(self, f"_{action}")(actor, options)
        self._answer(correction, json=options["json"])
        return DECIDE if correction.status == Correction.Status.DRAFT and action == "approve" else DONE

    def _draft(self, actor: str, options: dict[str, Any]) -> Correction:
        price, quantity = options["rebill_price"], options["rebill_quantity"]
        credits = [LineCredit(n, amount, price, quantity) for n, amount in options["line"]]
        wanted = Wanted(options["code"], options["reason"], options["evidence"], actor, timezone.now())
        return credit_note_draft(number=options["number"], credits=credits, wanted=wanted)

    def _sla(self, actor: str, options: dict[str, Any]) -> Correction:
        lost = LostWork(options["gpus"], options["lost_hours"], options["cap_hours"])
        wanted = Wanted(Correction.Reason.SLA, options["reason"], options["evidence"], actor, timezone.now())
        return sla_credit_draft(number=options["number"], position=options["line"], lost=lost, wanted=wanted)

    def _approve(self, actor: str, options: dict[str, Any]) -> Correction:
        return correction_approve(correction_id=options["id"], actor=actor, now=timezone.now())

    def _void(self, actor: str, options: dict[str, Any]) -> Correction:
        return correction_void(
            correction_id=options["id"], actor=actor, reason=options["reason"], now=timezone.now()
        )

    def _issue(self, actor: str, options: dict[str, Any]) -> Correction:
        correction_issue(correction_id=options["id"], actor=actor, now=timezone.now())
        return Correction.objects.get(pk=options["id"])

    def _list(self, *, json: bool) -> int:
        if json:
            self.print_json({"corrections": [correction_as_dict(item) for item in corrections_all()]})
            return DONE
        for item in corrections_all():
            self._answer(item, json=False)
        return DONE

    def _answer(self, correction: Correction, *, json: bool) -> None:
        if json:
            self.print_json(correction_as_dict(correction))
            return
        self.say(f"correction {correction.pk}: {correction.status}, {correction.reason_code}, {correction.reason}")
        for note in correction.notes.select_related("team").order_by("kind", "id"):
            name = note.number or f"({note.get_kind_display()})"
            self.say(f"  {name:<28} {note.team.code:<20} {note.total:>16} {note.currency}")
