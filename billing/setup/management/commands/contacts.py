"""`manage.py contacts [--json]`"""

from argparse import ArgumentParser
from typing import Any

from billing.invoices.selectors import contacts_all
from billing.setup.contacts import contacts_text
from billing.tenancy.app_command import DONE, AppCommand


class Command(AppCommand):
    help = "Who gets the documents of which team by mail: the section of the set-up file that declares it."

    def add_arguments(self, parser: ArgumentParser) -> None:
        self.take(parser, "json")

    def run(self, *, json: bool, **_: Any) -> int:
        contacts = contacts_all()
        if not json:
            self.stdout.write(contacts_text(contacts).rstrip())  # YAML escapes control characters
            return DONE
        rows = [
            {
                "team": contact.team.code, "name": contact.name or None, "address": contact.address,
                "language": contact.language, "valid_from": contact.valid_from.isoformat(),
                "valid_until": contact.valid_until.isoformat() if contact.valid_until else None,
            }
            for contact in contacts
        ]  # fmt: skip
        self.print_json({"contacts": rows})
        return DONE
