"""Documents by mail: queued with the issue, taken by a real server, never lost, and shown with their state."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from email.header import decode_header, make_header
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from django.db import IntegrityError, transaction

from billing.invoices.acceptance import printed_until
from billing.invoices.documents import PdfRenderer
from billing.invoices.models import BillingContact, DocumentMail, Invoice, Note
from billing.invoices.selectors import document_of
from billing.invoices.services import mails as service
from billing.invoices.services.mails import ContactWish, MailError, contact_add, contact_end, mail_resend, mails_send
from billing.settings.mail_server import MailServer as Configured
from billing.settings.mail_server import read_mail_server
from billing.tenancy.models import AuditEntry, Team
from tests.factories import allocation_record, apply, ingest_allocations, person, signed_in
from tests.factories.corrections import IN_NOVEMBER, OCTOBER_OVER, bill, credit, part, people
from tests.receivers import MailServer, mail_server

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
MINUTE = timedelta(minutes=1)


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    with mail_server() as found:
        configure(settings, found)
        yield found


def configure(settings: Any, found: MailServer) -> None:
    settings.MAIL_CONFIGURED, settings.MAIL_FROM = True, "Billing <billing@example.com>"
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT, settings.EMAIL_USE_TLS = "127.0.0.1", found.port, False
    settings.PORTAL_URL = "https://billing.example.com"


def contact(address: str = "ann@example.com", language: str = "en", since: str = "2026-01-01") -> BillingContact:
    nlp = Team.objects.get(code="nlp")
    return contact_add(wish=ContactWish(nlp, address, language, date.fromisoformat(since)), actor="sam")


def subject(server: MailServer, place: int) -> str:
    """The subject of a mail, unfolded."""
    return "".join(str(make_header(decode_header(server.mails[place][1]["Subject"]))).splitlines())


@pytest.fixture(scope="module")
def scenario(for_all_tests: Path) -> None:
    """nlp owes 1000.00 for October."""
    people()
    apply(for_all_tests)
    end = "2026-10-10T10:00:00Z"
    ingest_allocations(allocation_record(quantity=10, ended_at=end, observed_until=end))


def test_the_address_of_the_mail_server_is_read_and_never_repeated() -> None:
    assert read_mail_server("") is None
    assert read_mail_server("smtps://mail.example.com") == Configured("mail.example.com", 465, "", "", False, True)
    assert read_mail_server("smtp://u:p%40@h:2525") == Configured("h", 2525, "u", "p@", False, False)
    for wrong in ("mail://u:secret@h", "smtp://", "smtp://u:secret@h:port"):
        with pytest.raises(ImproperlyConfigured, match=r"^MAIL_URL: ") as reported:
            read_mail_server(wrong)
        assert "secret" not in str(reported.value)


@pytest.mark.usefixtures("scenario")
def test_an_issued_invoice_reaches_every_contact_in_its_language_with_its_pdf(server: MailServer) -> None:
    contact("ann@example.com", "en")
    contact("wang@example.com", "zh-hans")
    bill()
    assert mails_send(now=OCTOBER_OVER) == 2
    assert [to for to, _ in server.mails] == ["ann@example.com", "wang@example.com"]
    english = server.texts[0].replace("\r\n", "\n")
    assert subject(server, 0) == (
        "Invoice AI-INFRA-2026-000001, NLP Research, 2026-10: CNY 1,000.00, due 2026-11-13"
    )
    assert "Team: NLP Research (nlp, CC-210)\nMonth: 2026-10\nAmount: CNY 1,000.00\n" in english
    assert subject(server, 1) == "账单 AI-INFRA-2026-000001，NLP Research，2026-10：CNY 1,000.00，截止日 2026-11-13"
    invoice = Invoice.objects.get()
    assert f"https://billing.example.com/invoices/{invoice.pk}/" in english
    page = next(part for part in server.mails[0][1].walk() if part.get_content_type() == "text/html")
    assert b"CNY 1,000.00" in (page.get_payload(decode=True) or b"")
    for _, mail in server.mails:
        (pdf,) = [found for found in mail.walk() if found.get_content_type() == "application/pdf"]
        assert pdf.get_filename() == "AI-INFRA-2026-000001.pdf"
        assert pdf.get_payload(decode=True) == PdfRenderer().render(
            document_of(invoice), sha256=invoice.sha256, issued_at=invoice.issued_at, due=printed_until(invoice)
        )
    assert mails_send(now=OCTOBER_OVER + MINUTE) == 0
    assert len(server.mails) == 2


@pytest.mark.usefixtures("scenario")
def test_a_credit_note_is_sent_too_and_asks_for_nothing(server: MailServer) -> None:
    bill()
    contact()
    (note,) = credit(part("100.00"))
    assert DocumentMail.objects.get().note == note
    assert mails_send(now=IN_NOVEMBER) == 1
    (text,) = server.texts
    assert subject(server, 0) == f"Credit note {note.number}, NLP Research, 2026-11: CNY -100.00"
    assert "Corrects: AI-INFRA-2026-000001" in text
    assert "Due" not in text


@pytest.mark.usefixtures("scenario")
def test_contacts_count_from_their_day_until_the_day_they_end() -> None:
    contact("early@example.com", since="2026-01-01")
    contact("late@example.com", since="2026-11-02")
    gone = contact("gone@example.com")
    contact_end(contact_id=gone.pk, until=date(2026, 11, 1), actor="sam")
    bill()  # issued on 1 November, local
    assert list(DocumentMail.objects.values_list("address", flat=True)) == ["early@example.com"]
    with pytest.raises(MailError, match="there is none that is still in force"):
        contact_end(contact_id=gone.pk, until=date(2026, 12, 1), actor="sam")
    with pytest.raises(MailError, match="is a contact of nlp already"):
        contact("Early@example.com", since="2026-12-01")
    with pytest.raises(MailError, match="address 'nobody': is not a mail address"):
        contact("nobody")
    with pytest.raises(MailError, match="language 'fr': choose from zh-hans, en"):
        contact("x@example.com", "fr")
    reported = AuditEntry.objects.filter(action__startswith="billing_contact").values_list("action", "actor", "subject")
    assert list(reported) == [("billing_contact_add", "sam", "nlp")] * 3 + [("billing_contact_end", "sam", "nlp")]


@pytest.mark.usefixtures("scenario")
def test_a_document_is_queued_once_for_an_address_and_in_the_transaction_of_its_issue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contact()

    def die(*_: Any, **__: Any) -> int:
        raise RuntimeError("killed while queueing")

    with monkeypatch.context() as patch:
        patch.setattr("billing.invoices.services.invoices.mails_queue", die)
        with pytest.raises(RuntimeError, match="killed while queueing"):
            bill()
    assert Invoice.objects.get().number is None
    bill()
    mail = DocumentMail.objects.get()
    with pytest.raises(IntegrityError, match="one_mail_per_invoice_and_address"), transaction.atomic():
        DocumentMail.objects.create(invoice=mail.invoice, address=mail.address, language="en", queued_at=OCTOBER_OVER,
                                    next_attempt_at=OCTOBER_OVER)  # fmt: skip


@pytest.mark.usefixtures("scenario")
def test_who_dies_between_sending_and_marking_sends_again_with_the_same_message_id(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    contact()
    bill()
    save = DocumentMail.save

    def die(*_: Any, **__: Any) -> None:
        raise SystemExit("killed")

    monkeypatch.setattr(DocumentMail, "save", die)
    with pytest.raises(SystemExit, match="killed"):
        mails_send(now=OCTOBER_OVER)
    monkeypatch.setattr(DocumentMail, "save", save)
    assert DocumentMail.objects.get().status == "pending"
    assert mails_send(now=OCTOBER_OVER) == 1
    first, second = (mail["Message-ID"] for _, mail in server.mails)
    assert first == second
    mail = DocumentMail.objects.get()
    assert first == f"<{mail.document.sha256[:24]}.{mail.pk}.1@example.com>"


@pytest.mark.usefixtures("scenario")
def test_a_refusal_is_reported_and_tried_again_later_and_later(server: MailServer) -> None:
    contact()
    bill()
    server.failing = True
    now, waits = OCTOBER_OVER, []
    for _ in range(service.MOST_ATTEMPTS):
        assert mails_send(now=now) == 0
        assert mails_send(now=now) == 0  # not due again: nobody hammers
        mail = DocumentMail.objects.get()
        waits.append(mail.next_attempt_at - now)
        now = mail.next_attempt_at
    assert waits[:6] == [MINUTE, 4 * MINUTE, 16 * MINUTE, 64 * MINUTE, 256 * MINUTE, timedelta(hours=6)]
    assert (mail.status, mail.attempts, mail.error) == ("failed", 12, "451 later")
    server.failing = False
    assert mails_send(now=now + timedelta(days=1)) == 0
    mail_resend(mail_id=mail.pk, actor="sam", now=now)
    with pytest.raises(MailError, match="it waits already"):
        mail_resend(mail_id=mail.pk, actor="sam", now=now)
    assert mails_send(now=now) == 1
    mail = DocumentMail.objects.get()
    assert (mail.status, mail.error, mail.round, mail.sent_at) == ("sent", "", 2, now)
    ((_, sent),) = server.mails
    assert sent["Message-ID"].split("@")[0].endswith(".2")
    assert AuditEntry.objects.get(action="document_resend").subject == "AI-INFRA-2026-000001"


@pytest.mark.usefixtures("scenario")
def test_a_mail_that_cannot_be_made_holds_up_no_other(
    server: MailServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    contact("ann@example.com")
    contact("wang@example.com", "zh-hans")
    bill()
    make = service.mail_of

    def failing(mail: DocumentMail) -> Any:
        if mail.address == "ann@example.com":
            raise RuntimeError("no such font")
        return make(mail)

    monkeypatch.setattr(service, "mail_of", failing)
    assert mails_send(now=OCTOBER_OVER) == 1
    assert [to for to, _ in server.mails] == ["wang@example.com"]
    mail = DocumentMail.objects.get(address="ann@example.com")
    assert (mail.status, mail.attempts, mail.next_attempt_at) == ("pending", 1, OCTOBER_OVER + MINUTE)
    assert mail.error == "the mail cannot be made: RuntimeError: no such font"
    assert "Traceback" in caplog.text


@pytest.mark.usefixtures("scenario")
def test_an_address_that_the_server_refuses_for_good_is_not_tried_again(
    server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    contact()
    bill()
    server.failing, server.refusal = True, "550 no such user"
    assert mails_send(now=OCTOBER_OVER) == 0
    mail = DocumentMail.objects.get()
    assert (mail.status, mail.attempts, mail.error) == ("failed", 1, "550 no such user")


@pytest.mark.usefixtures("scenario")
def test_a_server_that_cannot_be_reached_holds_nothing_up(settings: Any) -> None:
    with mail_server() as gone:
        configure(settings, gone)
    contact()
    bill()
    assert mails_send(now=OCTOBER_OVER) == 0
    mail = DocumentMail.objects.get()
    assert (mail.status, mail.attempts) == ("pending", 1)
    assert mail.error.startswith("the mail server cannot be reached: ")


@pytest.mark.usefixtures("scenario")
def test_no_document_goes_to_somebody_who_left(server: MailServer) -> None:
    """ann's account is closed; the contact that has none, and one that shares its address with somebody here, get theirs."""
    for name, address, active in (("ann", "Ann@example.com", False), ("bo", "desk@example.com", False),
                                  ("cai", "desk@example.com", True)):  # fmt: skip
        User.objects.create_user(name, email=address, is_active=active)
    for address in ("ann@example.com", "desk@example.com", "li@example.com"):
        contact(address)
    bill()
    assert mails_send(now=OCTOBER_OVER) == 2
    assert sorted(to for to, _ in server.mails) == ["desk@example.com", "li@example.com"]
    left = DocumentMail.objects.get(status="failed")
    assert (left.address, left.error) == ("ann@example.com", "the account of that address is closed: end the contact")


@pytest.mark.usefixtures("scenario")
def test_without_a_mail_server_nothing_is_sent_and_old_mails_do_not_surprise_when_one_is_set(settings: Any) -> None:
    contact()
    bill()
    assert mails_send(now=OCTOBER_OVER) == 0
    assert (DocumentMail.objects.get().status, DocumentMail.objects.get().attempts) == ("pending", 0)
    with mail_server() as server:
        configure(settings, server)
        assert mails_send(now=OCTOBER_OVER + timedelta(days=8)) == 0
        assert server.mails == []
    assert DocumentMail.objects.get().error == "waited longer than 7 days: send it by hand if it is still wanted"


@pytest.mark.usefixtures("scenario")
def test_the_pages_report_where_each_document_went_and_let_finance_send_it_again(server: MailServer) -> None:
    client = signed_in(person("kay", "finance"))
    answer = client.post("/mails/contacts/", {
        "team": "nlp", "address": "ann@example.com", "language": "en", "valid_from": "2026-01-01",
    })  # fmt: skip
    assert answer.status_code == 302
    refused = client.post("/mails/contacts/", {"team": "nlp", "address": "ann", "language": "en", "valid_from": "x"})
    assert (refused.status_code, b"must be a day from 2000 to 2199 such as 2026-11-30" in refused.content) == (409, True)
    bill()
    server.failing, server.refusal = True, "550 no such user"
    mails_send(now=OCTOBER_OVER)
    invoice, mail = Invoice.objects.get(), DocumentMail.objects.get()
    for page in (f"/invoices/{invoice.pk}/", "/mails/"):
        text = client.get(page).content.decode()
        assert "ann@example.com" in text
        assert "550 no such user" in text
        assert f"/mails/{mail.pk}/resend/" in text
    assert "1 failed, 0 waiting" in text
    assert client.post(f"/mails/{mail.pk}/resend/").status_code == 302
    server.failing = False
    mails_send(now=datetime.now(tz=UTC))
    assert len(server.mails) == 1
    assert "1 failed" not in client.get("/mails/").content.decode()
    assert client.post(f"/mails/contacts/{BillingContact.objects.get().pk}/end/").status_code == 302
    assert BillingContact.objects.get().valid_until is not None


@pytest.mark.usefixtures("scenario")
def test_the_pages_say_that_no_server_is_set_or_that_nobody_gets_it() -> None:
    client = signed_in(person("kay", "finance"))
    bill()
    (note,) = credit(part("100.00"))
    assert Note.objects.get() == note
    for page in (f"/invoices/{Invoice.objects.get().pk}/", f"/notes/{note.pk}/"):
        text = client.get(page).content.decode()
        assert "Nothing is sent until MAIL_URL and MAIL_FROM are set." in text
        assert "Nobody: the team had no billing contact when the document was issued." in text


@pytest.mark.usefixtures("scenario")
def test_an_issued_document_is_sent_to_a_contact_that_came_later(server: MailServer) -> None:
    bill()
    invoice = Invoice.objects.get(team__code="nlp")
    assert not DocumentMail.objects.exists()
    late, finance = contact("late@example.com"), signed_in("sam")
    assert "Send to late@example.com" in finance.get(f"/invoices/{invoice.pk}/").content.decode()
    answer = finance.post("/mails/send/", {"invoice": invoice.pk, "contact_id": late.pk})
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/invoices/{invoice.pk}/")
    mail = DocumentMail.objects.get()
    assert (mail.invoice_id, mail.address, mail.status, mail.round) == (invoice.pk, "late@example.com", "pending", 1)
    sent = AuditEntry.objects.get(action="document_send")
    assert (sent.actor, sent.subject, sent.detail["address"]) == ("sam", invoice.number, "late@example.com")
    assert "Send to late@example.com" not in finance.get(f"/invoices/{invoice.pk}/").content.decode()
    assert mails_send(now=mail.next_attempt_at) == 1
    finance.post("/mails/send/", {"invoice": invoice.pk, "contact_id": late.pk})
    assert DocumentMail.objects.get().round == 2


@pytest.mark.usefixtures("scenario")
def test_a_document_is_sent_to_contacts_of_its_own_team_only() -> None:
    bill()
    invoice, cv = Invoice.objects.get(team__code="nlp"), Team.objects.get(code="cv")
    other = contact_add(wish=ContactWish(cv, "cv@example.com", "en", date(2026, 1, 1)), actor="sam")
    finance = signed_in("sam")
    for asked in ({"invoice": invoice.pk, "contact_id": other.pk}, {"contact_id": other.pk}, {"invoice": invoice.pk}):
        assert finance.post("/mails/send/", asked).status_code == 409
    assert not DocumentMail.objects.exists()


@pytest.mark.usefixtures("scenario")
def test_an_address_among_the_facts_of_a_team_is_refused_where_contacts_are_named(tmp_path: Path) -> None:
    admin = signed_in(person("adm", "admin"))
    facts = {"code": "nlp", "name": "NLP", "recipient": "li@example.org"}
    page = admin.post("/ownership/look/team/", facts).content.decode()
    assert "add it as a billing contact" in page
    (warning,) = apply(tmp_path, teams=[facts]).warnings
    assert warning.startswith("teams: nlp: recipient 'li@example.org' is an address, to which nothing is sent")
