"""Mail server of documents, parsed from one address: `smtp://`, `smtp+tls://` (STARTTLS) or `smtps://`."""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from django.core.exceptions import ImproperlyConfigured

PORTS = {"smtp": 25, "smtp+tls": 587, "smtps": 465}


@dataclass(frozen=True, slots=True)
class MailServer:
    """Parameters of Django's SMTP backend."""

    host: str
    port: int
    user: str
    password: str
    starttls: bool
    tls: bool


def read_mail_server(url: str) -> MailServer | None:
    """Parse MAIL_URL; return None where it is empty.  Raises ImproperlyConfigured, which never repeats the address.

    >>> read_mail_server("smtp+tls://ann:p%40ss@mail.example.com")
    MailServer(host='mail.example.com', port=587, user='ann', password='p@ss', starttls=True, tls=False)
    """
    if not url:
        return None
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError as error:
        raise ImproperlyConfigured("MAIL_URL: its port is no number") from error
    if parts.scheme not in PORTS or not parts.hostname:
        raise ImproperlyConfigured(f"MAIL_URL: write {', '.join(PORTS)}://user:password@host:port")
    return MailServer(
        parts.hostname, port or PORTS[parts.scheme], unquote(parts.username or ""), unquote(parts.password or ""),
        starttls=parts.scheme == "smtp+tls", tls=parts.scheme == "smtps",
    )  # fmt: skip
