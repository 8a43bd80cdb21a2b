"""Command `manage.py retroactive_change price|namespace|consumer|efficiency|show|acknowledge|approve|reject|list`."""

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.utils import timezone

from billing.corrections.effect import change_as_dict, effect_of
from billing.corrections.services.retroactive import (
    retroactive_acknowledge,
    retroactive_approve,
    retroactive_propose,
    retroactive_reject,
)
from billing.invoices.models import Note
from billing.rating.models import RetroactiveChange
from billing.rating.selectors import changes_all
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, approver, fail, operator
from metering.command_line import instant

FACTS = ("price", "namespace", "consumer", "efficiency")


def gpu_price(text: str) -> dict[str, str]:
    """Parse `NVIDIA-H800=9.5`, `:nvidia.com/mig-1g.10gb=1.5` or `NVIDIA-H800:nvidia.com/mig-1g.10gb=1.5`."""
    sku, separator, price = text.rpartition("=")
    if not separator or not sku:
        raise ArgumentTypeError(f"{text!r} must be ACCELERATOR[:RESOURCE]=PRICE")
    accelerator, _, resource = sku.partition(":")
    return {"accelerator": accelerator, "resource": resource, "price": price}


def token_price(text: str) -> dict[str, str]:
    """Parse `llama-3-8b/output=7.5`: model, token class, price of 1M tokens."""
    named, _, price = text.rpartition("=")
    model, separator, token_class = named.rpartition("/")
    if not separator:
        raise ArgumentTypeError(f"{text!r} must be MODEL/CLASS=PRICE")
    return {"model": model, "token_class": token_class, "price": price}


class Command(AppCommand):
    help = "Change a price, an owner or late samples of closed time: see what it does, then let a second person approve it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="|".join((*FACTS, "show|approve|list|…")))
        price = actions.add_parser("price", help="prices that should have been others")
        price.add_argument("--gpu", type=gpu_price, action="append", default=[], metavar="SKU=PRICE")
        price.add_argument("--token", type=token_price, action="append", default=[], metavar="MODEL/CLASS=PRICE")
        for kind, scope, thing in (("namespace", "cluster", "namespace"), ("consumer", "source", "consumer")):
            owner = actions.add_parser(kind, help=f"a {thing} that belonged to another team")
            owner.add_argument("scope", metavar=scope.upper())
            owner.add_argument("thing", metavar=thing.upper())
            owner.add_argument("--team", required=True, help="the team that it belonged to")
            owner.add_argument("--onwards", action="store_true", help="and belongs to from the end of closed time on")
        actions.add_parser("efficiency", help="let efficiency samples that came after the close count")
        for kind in FACTS:
            self._add_proposal(actions.choices[kind])
        for action in ("show", "acknowledge", "approve", "reject"):
            chosen = actions.add_parser(action, help=f"{action} a change")
            chosen.add_argument("id", type=int)
            if action == "acknowledge":
                chosen.add_argument("--team", required=True)
            if action == "reject":
                chosen.add_argument("--reason", required=True)
            self.take(chosen, "by", "json")
        self.take(actions.add_parser("list", help="all changes, the newest first"), "json")

    def _add_proposal(self, parser: ArgumentParser) -> None:
        parser.add_argument("--name", required=True, help="shown on lines as VERSION+NAME")
        parser.add_argument("--from", dest="valid_from", type=instant, required=True, metavar="TIME")
        parser.add_argument("--until", type=instant, metavar="TIME", help="default: the end of closed time")
        parser.add_argument("--reason", required=True)
        parser.add_argument("--evidence", default="")
        self.take(parser, "by", "json")

    def run(self, *, action: str, json: bool, **options: Any) -> int:
        if action == "list":
            return self._list(json)
        change = self._done(action, options)
        self._answer(change, json)
        return DECIDE if action == "approve" and change.proposal.waits else DONE

    def _done(self, action: str, options: dict[str, Any]) -> RetroactiveChange:
        if action == "show":
            return _change(options["id"])
        rights = () if action == "acknowledge" else (Right.CLOSE, Right.APPROVE)
        actor, now = (approver if action == "approve" else operator)(options["by"], *rights), timezone.now()
        if action in FACTS:
            return retroactive_propose(
                kind=action, name=options["name"], fact=_fact(action, options), valid_from=options["valid_from"],
                valid_until=options["until"], reason=options["reason"], evidence=options["evidence"], actor=actor, now=now,
            )  # fmt: skip
        facts: dict[str, Any] = {"change_id": options["id"], "actor": actor, "now": now}
        if action == "acknowledge":
            return retroactive_acknowledge(**facts, team=options["team"])
        if action == "approve":
            return retroactive_approve(**facts)
        return retroactive_reject(**facts, reason=options["reason"])

    def _list(self, json: bool) -> int:
        if json:
            self.print_json({"changes": [change_as_dict(change) for change in changes_all()]})
            return DONE
        for change in changes_all():
            self.say(f"{change.pk:>6} {change.status:<10} {change.kind:<10} {change.name}: {change.reason}")
        return DONE

    def _answer(self, change: RetroactiveChange, json: bool) -> None:
        if json:
            self.print_json(change_as_dict(change))
            return
        self.say(f"change {change.pk} {change.name}: {change.status}, {change.kind}, {change.reason}")
        effect = effect_of(change)
        for team, problem in sorted(effect.unrated.items()):
            self.say(f"  {team} cannot be rated, what moves of it is unknown: {problem}")
        for row in effect.by_team_and_month():
            before = f" credited before {row.credited:>14}, of which {row.kept} stays" if row.credited else ""
            self.say(
                f"  {row.month} {row.team:<20} charged {row.charged:>14} should be {row.should_be:>14} "
                f"difference {row.difference:>14}{before}"
            )
        for note in Note.objects.filter(correction__change=change).order_by("kind", "sequence"):
            self.say(f"  {note.number or '(draft)':<28} {note.total:>14} {note.currency}")


def _change(pk: int) -> RetroactiveChange:
    change = RetroactiveChange.objects.filter(pk=pk).first()
    if change is None:
        fail(f"change {pk}: there is none of that id")
    return change


def _fact(kind: str, options: dict[str, Any]) -> dict[str, Any]:
    if kind == "price":
        return {"gpu": options["gpu"], "tokens": options["token"]}
    if kind == "efficiency":
        return {}
    return {"scope": options["scope"], "name": options["thing"], "team": options["team"], "onwards": options["onwards"]}
