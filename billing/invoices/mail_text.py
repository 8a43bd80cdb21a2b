"""Mail of one document in the language of its recipient: kind, amount, dispute deadline, and the PDF."""

from datetime import timedelta
from decimal import Decimal
from email.utils import parseaddr

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.utils.translation import override

from billing.invoices.acceptance import printed_until
from billing.invoices.models import DocumentMail, Invoice, Note
from billing.invoices.selectors import document_of
from billing.invoices.services.documents import CONTENT_TYPES, document_file
from billing.tenancy.links import portal_link
from pricing.number_text import grouped_amount


def mail_of(mail: DocumentMail) -> EmailMultiAlternatives:
    """Return the mail as sent: text, the same as HTML, the PDF; Message-ID by document, recipient and round."""
    document = mail.document
    with override(mail.language):
        facts = facts_of_mail(document)
        subject = " ".join(_subject(document).split())  # a line break in a name must not break the header
        context = {"facts": facts, "title": _kind(document), "due": _due(document)}
        link = portal_link("invoice" if isinstance(document, Invoice) else "note", document.pk)
        context |= {"subject": subject, "amount": _money(document), "link": link}
        text, page = render_to_string("mail/document_text.html", context), render_to_string("mail/document.html", context)
    message = EmailMultiAlternatives(
        subject, text, settings.MAIL_FROM, [mail.address], headers={"Message-ID": message_id(mail)}
    )
    message.attach_alternative(page, "text/html")
    message.attach(f"{document.number}.pdf", document_file(document, "pdf"), CONTENT_TYPES["pdf"])
    return message


def message_id(mail: DocumentMail) -> str:
    """Return the Message-ID: equal for every attempt of a round, another for every recipient and every round."""
    domain = parseaddr(settings.MAIL_FROM)[1].rpartition("@")[2] or "localhost"
    return f"<{mail.document.sha256[:24]}.{mail.pk}.{mail.round}@{domain}>"


def facts_of_mail(document: Invoice | Note) -> list[tuple[str, str]]:
    """Return label and value of each fact of the mail, in the active language."""
    content = document_of(document)
    recipient = content["recipient"]
    name = recipient["name"] or recipient["team"]
    rows = [
        (_("Number"), str(document.number)),
        (_("Team"), f"{name} ({recipient['team']}{', ' + recipient['cost_center'] if recipient['cost_center'] else ''})"),
        (_("Month"), content["period"]["month"]),
        (_("Amount"), _money(document)),
        (_("Issued by"), content["issuer"]["name"]),
    ]
    if contact := content["issuer"].get("contact"):
        rows.append((_("Contact"), contact))
    if isinstance(document, Note) and document.invoice is not None:
        rows.append((_("Corrects"), str(document.invoice.number)))
    if isinstance(document, Note):
        rows.append((_("Reason"), content["reason"]["text"]))
    if due := _due(document):
        rows.append((_("Due"), f"{due} ({content['period']['zone']})"))
    return [*rows, ("SHA-256", document.sha256)]


def _due(document: Invoice | Note) -> str:
    """Return the last day of the dispute window, which ends at the local midnight after it."""
    due = printed_until(document)
    return "" if due is None else (due.date() - timedelta(days=1)).isoformat()


def _subject(document: Invoice | Note) -> str:
    content = document_of(document)
    facts = {
        "kind": _kind(document), "number": document.number, "team": content["recipient"]["name"] or document.team.code,
        "month": content["period"]["month"], "amount": _money(document), "due": _due(document),
    }  # fmt: skip
    if not facts["due"]:
        return _("%(kind)s %(number)s, %(team)s, %(month)s: %(amount)s") % facts
    return _("%(kind)s %(number)s, %(team)s, %(month)s: %(amount)s, due %(due)s") % facts


def _kind(document: Invoice | Note) -> str:
    if isinstance(document, Invoice):
        return _("Invoice")
    return _("Credit note") if document.kind == Note.Kind.CREDIT else _("Rebill")


def _money(document: Invoice | Note) -> str:
    return f"{document.currency} {grouped_amount(Decimal(document.total))}"
