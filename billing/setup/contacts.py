"""Section `contacts` of the set-up file: the addresses that get a team's documents by mail.

    contacts:
      - {team: nlp, name: Li Na, address: li.na@example.org, language: zh-hans, valid_from: 2026-10-01}

A contact is identified by team, address and first day (2000-01-01 by default). An undeclared contact stays: an end is
declared with `valid_until`, the first day on which nothing is sent any more.
"""

from collections.abc import Iterable
from datetime import date
from typing import Any, Final

from billing.invoices.models import BillingContact
from billing.invoices.services.mails import ContactWish, MailError, contact_put
from billing.setup.file import Entry, declared_text
from billing.tenancy.models import Team

ALWAYS: Final = date(2000, 1, 1)


def contact_store(entry: Entry, team: Team, actor: str) -> tuple[bool, str]:
    """Store one entry; return True if it changed anything, and its description.  Raises SetUpFileError."""
    wish = ContactWish(
        team, entry.text("address", limit=254),
        entry.choice("language", tuple(BillingContact.Language.values), BillingContact.Language.CHINESE),
        entry.day("valid_from") or ALWAYS, entry.text("name", default=""), entry.day("valid_until"),
    )  # fmt: skip
    entry.finish()
    try:
        changed = contact_put(wish=wish, actor=actor)
    except MailError as error:
        # the service's message begins with the name of its field
        field, _, _ = str(error).partition(" ")
        raise entry.error(field if field in ("address", "valid_until") else "address", str(error)) from error
    ends = f" until {wish.valid_until}" if wish.valid_until else ""
    return changed, f"contact {wish.address} of {team.code}: {wish.name or '(no name)'}, {wish.language}{ends}"


def contacts_text(contacts: Iterable[BillingContact]) -> str:
    """Return the section that declares these contacts, as `apply` takes it."""
    return declared_text({"contacts": [_declared(contact) for contact in contacts]})


def _declared(contact: BillingContact) -> dict[str, Any]:
    facts = {
        "team": contact.team.code, "name": contact.name, "address": contact.address, "language": contact.language,
        "valid_from": None if contact.valid_from == ALWAYS else contact.valid_from, "valid_until": contact.valid_until,
    }  # fmt: skip
    return {name: value for name, value in facts.items() if value}
