"""`manage.py apply FILE [--dry-run]`"""

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from billing.setup.apply import set_up_apply
from billing.tenancy.access import Right
from billing.tenancy.app_command import DECIDE, DONE, AppCommand, number_of, operator


class Command(AppCommand):
    help = "Apply a set-up file: idempotent, shows what changes, never edits a published price in place."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, metavar="FILE")
        parser.add_argument("--dry-run", action="store_true", help="show what would change, change nothing")
        self.take(parser, "by", "json")

    def run(self, *, file: Path, dry_run: bool, by: str | None, json: bool, **_: Any) -> int:
        applied = set_up_apply(path=file, actor=operator(by, Right.OPERATE, needed=False), dry_run=dry_run)
        password = "" if dry_run else applied.first_password
        for warning in applied.warnings:
            self.stderr.write(f"warning: {warning}")
        if json:
            first = {"first_password": password} if password else {}
            warned = {"warnings": applied.warnings} if applied.warnings else {}
            waiting = {"waiting": applied.waiting} if applied.waiting else {}
            facts = {"dry_run": dry_run, "changes": applied.changes, "unchanged": applied.unchanged}
            self.print_json({**facts, **warned, **waiting, **first})
            return DECIDE if applied.waiting else DONE
        for change in applied.changes:
            self.say(f"{'would change' if dry_run else 'changed'}: {change}")
        if password:
            self.say(f"first account: sign in as {applied.first_user} with {password}, which is shown this once")
        self.say(f"{number_of(len(applied.changes), 'change')}, {applied.unchanged:,} unchanged")
        for name in applied.waiting:
            self.say(f"{name} waits for approval by a second person: `manage.py price_version approve {name} --by USER`")
        return DECIDE if applied.waiting else DONE
