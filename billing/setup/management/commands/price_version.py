"""`manage.py price_version list|export|import|diff|preview|submit|approve|reject|rebase|withdraw`"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.utils import timezone

from billing.closing.price_preview import draft_effect, last_month
from billing.rates.models import PriceDraft, PriceVersion
from billing.rates.price_diff import PriceChange, price_changes
from billing.rates.price_file import export_yaml
from billing.rates.selectors import plain_version, price_draft_named, price_list_named, price_version_before
from billing.rates.services import (
    price_draft_approve,
    price_draft_rebase,
    price_draft_reject,
    price_draft_submit,
    price_draft_withdraw,
)
from billing.rating.price_effect import Effect, PriceEffect
from billing.rating.price_warnings import draft_warnings
from billing.runtime.atomic_file import atomic_file
from billing.setup.price_import import price_lists_import
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, approver, fail, operator, progress
from billing.tenancy.selectors import billing_setup

STEPS = {
    "submit": (price_draft_submit, "waits for approval by somebody else than", "hand a draft over for approval"),
    "approve": (price_draft_approve, "is published by", "publish a submitted draft; by nobody who wrote or submitted it"),
    "reject": (price_draft_reject, "is rejected by", "send a submitted draft back, with a reason"),
    "rebase": (price_draft_rebase, "has the prices of the list that it follows, by", "take over what was published since"),
    "withdraw": (price_draft_withdraw, "is withdrawn by", "give a draft up; it stays in the history"),
}


class Command(AppCommand):
    help = "Price lists from draft to publication: list, export, import, compare, preview, submit, approve, reject."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        self.take(actions.add_parser("list", help="every published version and draft"), "json")
        chosen = actions.add_parser("export", help="write a version or draft as YAML, with its cost sheets")
        chosen.add_argument("name", metavar="NAME")
        chosen.add_argument("--out", type=Path, metavar="FILE", help="default: standard output")
        chosen = actions.add_parser("import", help="make or change the drafts of a file; publishes nothing")
        chosen.add_argument("file", type=Path, metavar="FILE", help="YAML, or a table: CSV, XLSX, Parquet")
        chosen.add_argument("--sheet", metavar="NAME", help="sheet of an XLSX file (default: its first one)")
        chosen.add_argument("--reason", help="why prices change")
        self.take(chosen, "by")
        chosen = actions.add_parser("diff", help="compare two lists price by price")
        chosen.add_argument("name", metavar="NAME")
        chosen.add_argument("--against", metavar="NAME", help="default: the published version before it")
        self.take(chosen, "json")
        chosen = actions.add_parser("preview", help="what a draft would have done to a month; 3 if it lacks a price")
        chosen.add_argument("name", metavar="NAME")
        chosen.add_argument("--month", metavar="2026-10", help="default: the last month that has ended")
        self.take(chosen, "json")
        for step, (_, _, text) in STEPS.items():
            chosen = actions.add_parser(step, help=text)
            chosen.add_argument("name", metavar="NAME")
            chosen.add_argument("--reason", default=None if step in ("submit", "rebase") else "", help="kept with the step")
            self.take(chosen, "by")

    def run(self, *, action: str, **options: Any) -> int:
        if action in STEPS:
            right = Right.APPROVE if action in ("approve", "reject") else Right.EDIT_PRICES
            actor = (approver if action == "approve" else operator)(options["by"], right)
            return self._step(action, options["name"], options["reason"], actor)
        return int(getattr(self, f"_{action}")(**options))

    def _list(self, *, json: bool, **_: Any) -> int:
        rows = [_version_row(version) for version in PriceVersion.objects.filter(sealed=True).select_related("draft")]
        rows += [_draft_row(draft) for draft in PriceDraft.objects.exclude(state="approved").order_by("id")]
        if json:
            self.print_json({"price_versions": rows})
            return DONE
        for row in rows:
            by = f"approved by {row['approved_by']}" if row["approved_by"] else f"made by {', '.join(row['makers'])}"
            self.say(f"{row['name']:<24} {row['state']:<10} from {row['valid_from']}  {by}")
        return DONE

    def _export(self, *, name: str, out: Path | None, **_: Any) -> int:
        text = export_yaml(_listed(name), billing_setup().zone)
        if out is None:
            self.stdout.write(text, ending="")
            return DONE
        try:
            with atomic_file(out) as draft:
                draft.write_text(text, encoding="utf-8")
        except OSError as error:
            fail(f"{out}: {error.strerror}")
        self.say(f"{name} is in {out}")
        return DONE

    def _import(self, *, file: Path, sheet: str | None, reason: str | None, by: str | None, **_: Any) -> int:
        actor = operator(by, Right.EDIT_PRICES)
        made = price_lists_import(path=file, sheet=sheet, actor=actor, now=timezone.now(), reason=reason)
        for draft, told in made:
            self.say(f"draft {draft.name}, revision {draft.revision}: {told}")
            self._warn(draft)
        return DONE

    def _diff(self, *, name: str, against: str | None, json: bool, **_: Any) -> int:
        new = _listed(name)
        old = _listed(against) if against else price_version_before(new)
        if old is None:
            fail(f"{name}: there is no published version before it: name one with --against")
        changes = price_changes(plain_version(old), plain_version(new))
        if json:
            self.print_json({"old": old.name, "new": new.name, "prices": [change.as_dict() for change in changes]})
            return DONE
        self.say(f"{old.name} -> {new.name}")
        for change in changes:
            if change.change != "same":
                self.say(f"  {_change_line(change)}")
        same = sum(change.change == "same" for change in changes)
        self.say(f"  {same} prices are the same")
        return DONE

    def _preview(self, *, name: str, month: str | None, json: bool, **_: Any) -> int:
        draft, chosen = _draft(name), month or last_month(timezone.now())
        bar = progress(None, f"pricing the usage of {chosen} twice")
        try:
            effect = draft_effect(draft=draft, month=chosen)
        finally:
            bar.close()
        if json:
            self.print_json({"draft": name, "month": chosen, "currency": draft.currency, **effect.as_dict()})
        else:
            self._print_effect(draft, chosen, effect)
        return DECIDE if effect.unpriced_after else DONE

    def _print_effect(self, draft: PriceDraft, month: str, effect: PriceEffect) -> None:
        self.say(f"{draft.name} on the usage of {month}, {draft.currency}")
        self.say(f"  {'':<40} {'before':>16} {'after':>16} {'difference':>16} {'%':>9}")
        for row in effect.by_team:
            self.say(_effect_line(row.key.team, row))
            for part in effect.of_team(row.key.team):
                self.say(_effect_line(f"  {part.key.sku} {part.key.token_class or part.key.kind}", part))
        self.say(_effect_line("all teams", effect.total))
        for team, problem in sorted(effect.unrated.items()):
            self.say(f"  CANNOT BE RATED: {team}, in no amount: {problem}")
        for item in effect.unpriced_after:
            self.say(f"  WITHOUT A PRICE: {item.sku}, {item.quantity:,f} {item.unit}: it would block the close")

    def _warn(self, draft: PriceDraft) -> None:
        for warning in draft_warnings(draft, timezone.now()).values():
            self.stderr.write(f"warning: {warning}")

    def _step(self, action: str, name: str, reason: str | None, actor: str) -> int:
        step: Any = STEPS[action][0]
        draft = _draft(name)
        if action in ("submit", "approve"):
            self._warn(draft)
        step(draft=draft, actor=actor, now=timezone.now(), reason=reason)
        self.say(f"{name} {STEPS[action][1]} {actor}")
        return DONE


def _listed(name: str) -> PriceDraft | PriceVersion:
    found = price_list_named(name)
    if found is None:
        fail(f"{name!r}: there is no price version or draft of that name, see `manage.py price_version list`")
    return found


def _draft(name: str) -> PriceDraft:
    found = price_draft_named(name)
    if found is None:
        fail(f"{name!r}: there is no draft of that name, see `manage.py price_version list`")
    return found


def _version_row(version: PriceVersion) -> dict[str, Any]:
    draft = getattr(version, "draft", None)
    return {
        "name": version.name, "state": "published", "valid_from": version.valid_from.isoformat(),
        "makers": draft.makers if draft else [version.published_by], "approved_by": version.published_by,
    }  # fmt: skip


def _draft_row(draft: PriceDraft) -> dict[str, Any]:
    return {
        "name": draft.name, "state": draft.state, "valid_from": draft.valid_from.isoformat(), "makers": draft.makers,
        "approved_by": None,
    }  # fmt: skip


def _change_line(change: PriceChange) -> str:
    key = change.key
    what = " ".join(part for part in (key.sku, f"on {key.accelerator}" if key.accelerator else "", key.token_class) if part)
    percent = f" ({change.percent:+f} %)" if change.percent is not None else ""
    return f"{change.change:<8} {what}: {_price(change.old)} -> {_price(change.new)} per {key.unit}{percent}"


def _price(price: Any) -> str:
    return "none" if price is None else format(price, "f")


def _effect_line(name: str, row: Effect) -> str:
    if row.unpriced:
        after = f"{row.after:,f}" if row.after else "no price"
        return f"  {name:<40} {row.before:>16,f} {after:>16} {'unknown':>16} {'':>9}".rstrip()
    percent = "new" if row.percent is None and row.after else f"{row.percent or 0:+.2f}"
    return f"  {name:<40} {row.before:>16,f} {row.after:>16,f} {row.difference:>+16,f} {percent:>9}"
