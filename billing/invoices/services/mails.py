"""Mails of documents: queued in the transaction of the issue, sent by the first process that finds them, with retries.

A mail's row is locked while it is sent and updated in the same transaction. If a process dies between the server's
acceptance and the commit, the mail is sent again with the same Message-ID: never lost, and recognisable as the same.
"""

import logging
import smtplib
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.validators import validate_email
from django.db import transaction
from django.db.models import Q, QuerySet

from billing.invoices.mail_text import mail_of
from billing.invoices.models import BillingContact, DocumentMail, Invoice, Note
from billing.runtime.apart import log_failure
from billing.tenancy.audit import audit_record
from billing.tenancy.models import Team
from billing.tenancy.people import has_left
from billing.tenancy.selectors import billing_setup
from metering.intervals import day_of
from metering.messages import Message, UserError

FIRST_WAIT: Final = timedelta(minutes=1)
LONGEST_WAIT: Final = timedelta(hours=6)
MOST_ATTEMPTS: Final = 12
OLDEST: Final = timedelta(days=7)
"""Age beyond which a pending mail fails, for example if no mail server was set: a later delivery would surprise."""
Status = DocumentMail.Status

log = logging.getLogger(__name__)


class MailError(UserError, ValueError):
    """Error of a contact or a mail that cannot be as requested; the message states what to do."""

    code = "mail"


@dataclass(frozen=True, slots=True)
class ContactWish:
    """Requested contact: an address for a team's documents from a local day to the day before `valid_until`, if set."""

    team: Team
    address: str
    language: str
    valid_from: date
    name: str = ""
    valid_until: date | None = None


def contact_add(*, wish: ContactWish, actor: str) -> BillingContact:
    """Add a contact for the documents of a team from a day on.  Raises MailError."""
    address = _checked(wish)
    with transaction.atomic():
        Team.objects.select_for_update().get(pk=wish.team.pk)
        known = wish.team.billing_contacts.filter(address=address)
        if known.filter(Q(valid_until=None) | Q(valid_until__gt=wish.valid_from)).exists():
            raise MailError(Message(
                "%(address)s is a contact of %(code)s already: end that first", address=address, code=wish.team.code
            ))
        contact = BillingContact.objects.create(
            team=wish.team, address=address, language=wish.language, valid_from=wish.valid_from, set_by=actor,
            name=wish.name.strip(), valid_until=wish.valid_until,
        )  # fmt: skip
        detail = {"address": address, "language": wish.language, "valid_from": wish.valid_from.isoformat()}
        audit_record(actor=actor, action="billing_contact_add", subject=wish.team.code, detail=detail)
    return contact


def _checked(wish: ContactWish) -> str:
    """Return the address in its stored form.  Raises MailError."""
    address = wish.address.strip().lower()
    try:
        validate_email(address)
    except ValidationError as error:
        raise MailError(Message("address %(address)s: is not a mail address", address=repr(wish.address[:80]))) from error
    if wish.language not in BillingContact.Language.values:
        raise MailError(Message(
            "language %(language)s: choose from %(names)s",
            language=repr(wish.language[:20]), names=", ".join(BillingContact.Language.values),
        ))
    if wish.valid_until is not None and wish.valid_until < wish.valid_from:
        raise MailError(Message(
            "valid_until %(valid_until)s: lies before valid_from %(valid_from)s",
            valid_until=wish.valid_until, valid_from=wish.valid_from,
        ))
    return address


def contact_put(*, wish: ContactWish, actor: str) -> bool:
    """Add, change or end a contact as declared; return True if that changed it.

    A contact is identified by its team, address and first day.  Raises MailError.
    """
    address = _checked(wish)
    with transaction.atomic():
        Team.objects.select_for_update().get(pk=wish.team.pk)
        known = wish.team.billing_contacts.filter(address=address, valid_from=wish.valid_from).first()
        if known is None:
            contact_add(wish=wish, actor=actor)
            return True
        wanted = {"name": wish.name.strip(), "language": wish.language, "valid_until": wish.valid_until}
        before = {name: getattr(known, name) for name in wanted}
        if before == wanted:
            return False
        if known.valid_until is not None and wish.valid_until is None:
            raise MailError(Message(
                "%(address)s ended as a contact of %(code)s on %(valid_until)s: declare that as valid_until, or a "
                "later valid_from",
                address=address, code=wish.team.code, valid_until=known.valid_until,
            ))
        later = wish.team.billing_contacts.filter(address=address, valid_from__gt=wish.valid_from)
        if wish.valid_until is not None and later.filter(valid_from__lt=wish.valid_until).exists():
            raise MailError(Message(
                "valid_until %(valid_until)s: %(address)s is a contact again before that",
                valid_until=wish.valid_until, address=address,
            ))
        for name, value in wanted.items():
            setattr(known, name, value)
        known.save(update_fields=list(wanted))
        detail = {"address": address, "before": _as_texts(before), "after": _as_texts(wanted)}
        audit_record(actor=actor, action="billing_contact_put", subject=wish.team.code, detail=detail)
    return True


def _as_texts(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: value.isoformat() if isinstance(value, date) else value for name, value in facts.items()}


def contact_end(*, contact_id: int, until: date, actor: str) -> BillingContact:
    """End a contact on a local day, from which it gets no mail.  Raises MailError."""
    with transaction.atomic():
        contact = BillingContact.objects.select_for_update().select_related("team").filter(pk=contact_id).first()
        if contact is None or contact.valid_until is not None:
            raise MailError(Message("contact %(number)s: there is none that is still in force", number=contact_id))
        contact.valid_until = max(until, contact.valid_from)
        contact.save(update_fields=["valid_until"])
        detail = {"address": contact.address, "valid_until": contact.valid_until.isoformat()}
        audit_record(actor=actor, action="billing_contact_end", subject=contact.team.code, detail=detail)
    return contact


def in_force(contacts: QuerySet[BillingContact], day: date) -> QuerySet[BillingContact]:
    """Return those of some contacts that are in force on a local day."""
    return contacts.filter(valid_from__lte=day).filter(Q(valid_until=None) | Q(valid_until__gt=day))


def mails_queue(*documents: Invoice | Note, now: datetime) -> int:
    """Queue documents for the contacts of their teams, in the issuing transaction; return the number of mails."""
    day = day_of(now, billing_setup().zone)
    contacts: dict[int, list[BillingContact]] = defaultdict(list)
    for contact in in_force(BillingContact.objects.filter(team__in={item.team_id for item in documents}), day):
        contacts[contact.team_id].append(contact)
    made = [
        DocumentMail(
            **({"invoice": document} if isinstance(document, Invoice) else {"note": document}),
            address=contact.address, language=contact.language, queued_at=now, next_attempt_at=now,
        )
        for document in documents for contact in contacts[document.team_id]
    ]  # fmt: skip
    return len(DocumentMail.objects.bulk_create(made))


def document_send(*, document: Invoice | Note, contact_id: int, actor: str, now: datetime) -> DocumentMail:
    """Send an issued document of any age to a contact of its team in force; resend it if that address had it before.

    Raises MailError.
    """
    contacts = in_force(document.team.billing_contacts.all(), day_of(now, billing_setup().zone))
    contact = contacts.filter(pk=contact_id).first()
    if contact is None:
        raise MailError(Message(
            "contact %(number)s: there is none of %(code)s that is in force", number=contact_id, code=document.team.code
        ))
    if document.number is None:
        raise MailError(Message("the document is not issued: nothing is sent before that"))
    known = document.mails.filter(address=contact.address).first()
    if known is not None:
        return mail_resend(mail_id=known.pk, actor=actor, now=now)
    with transaction.atomic():
        mail = DocumentMail.objects.create(
            **({"invoice": document} if isinstance(document, Invoice) else {"note": document}),
            address=contact.address, language=contact.language, queued_at=now, next_attempt_at=now,
        )
        detail = {"address": contact.address, "contact": contact.pk}
        audit_record(actor=actor, action="document_send", subject=document.number, detail=detail)
    return mail


def contacts_unsent(document: Invoice | Note, now: datetime) -> list[BillingContact]:
    """Return contacts of the document's team in force to which it was never sent."""
    contacts = in_force(document.team.billing_contacts.order_by("address"), day_of(now, billing_setup().zone))
    return list(contacts.exclude(address__in=document.mails.values("address")))


def mail_resend(*, mail_id: int, actor: str, now: datetime) -> DocumentMail:
    """Queue a mail again after success or failure; a pending one is refused.  Raises MailError."""
    with transaction.atomic():
        mail = DocumentMail.objects.select_for_update().filter(pk=mail_id).first()
        if mail is None or mail.status == Status.PENDING:
            raise MailError(Message("mail %(number)s: it waits already", number=mail_id)
            if mail else Message("mail %(number)s: there is no such mail", number=mail_id)
        )
        mail.status, mail.round, mail.attempts = Status.PENDING, mail.round + 1, 0
        mail.queued_at = mail.next_attempt_at = now
        mail.error = ""
        mail.save()
        detail = {"address": mail.address, "round": mail.round}
        audit_record(actor=actor, action="document_resend", subject=str(mail.document.number), detail=detail)
    return mail


def mails_send(*, now: datetime) -> int:
    """Send due mails one after the other; return the number that the server accepted. Does nothing without a server."""
    if not settings.MAIL_CONFIGURED:
        return 0
    due = DocumentMail.objects.filter(status=Status.PENDING, next_attempt_at__lte=now).order_by("next_attempt_at", "id")
    return sum(_send(mail_id, now) for mail_id in list(due.values_list("id", flat=True)))


def _send(mail_id: int, now: datetime) -> bool:
    with transaction.atomic():
        rows = DocumentMail.objects.select_for_update(skip_locked=True)
        mail = rows.filter(pk=mail_id, status=Status.PENDING, next_attempt_at__lte=now).first()
        if mail is None:
            return False  # another process sends it, or has sent it
        if now - mail.queued_at > OLDEST:
            _give_up(mail, f"waited longer than {OLDEST.days} days: send it by hand if it is still wanted")
            return False
        if has_left(mail.address):
            _give_up(mail, "the account of that address is closed: end the contact")
            return False
        try:
            with transaction.atomic():
                # in a savepoint: a database error while the mail is made must not abort the outer transaction
                mail_of(mail).send()
        except Exception as error:  # noqa: BLE001 - the edge of the loop: whatever it is, it holds up no other mail
            if not isinstance(error, OSError):
                log_failure(log, error, "mail %s waits", mail.pk)
            _failed(mail, error, now)
            return False
        mail.status, mail.sent_at, mail.error, mail.attempts = Status.SENT, now, "", mail.attempts + 1
        mail.save()
        return True


def _failed(mail: DocumentMail, error: Exception, now: datetime) -> None:
    """Schedule the next attempt, unless the refusal is permanent or attempts are exhausted."""
    mail.attempts += 1
    reason = _reason(error, mail.address)
    if _is_final(error) or mail.attempts >= MOST_ATTEMPTS:
        _give_up(mail, reason)
        return
    wait: timedelta = min(FIRST_WAIT * 4 ** (mail.attempts - 1), LONGEST_WAIT)
    mail.error, mail.next_attempt_at = reason, now + wait
    mail.save()


def _give_up(mail: DocumentMail, why: str) -> None:
    mail.status, mail.error = Status.FAILED, why
    mail.save()


def _is_final(error: Exception) -> bool:
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return all(code >= 500 for code, _ in error.recipients.values())
    # 550 to 559 refuse this mail; other replies may change with the state of the server
    return isinstance(error, smtplib.SMTPResponseException) and 550 <= error.smtp_code < 560


def _reason(error: Exception, address: str) -> str:
    """Return the error in one line; a refusal in the server's own words."""
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        code, text = error.recipients.get(address) or next(iter(error.recipients.values()))
        return f"{code} {text.decode('utf-8', 'replace')}"[:500]
    if isinstance(error, smtplib.SMTPResponseException):
        answer = error.smtp_error.decode("utf-8", "replace") if isinstance(error.smtp_error, bytes) else error.smtp_error
        return f"{error.smtp_code} {answer}"[:500]
    if isinstance(error, OSError):
        return f"the mail server cannot be reached: {error}"[:500]
    return f"the mail cannot be made: {type(error).__name__}: {error}"[:500]
