"""Sending through Apprise: one message to one channel. An address is a secret, so nothing here ever logs or repeats it."""

import logging
import warnings
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from django.conf import settings

from billing.budgets.models import Channel
from billing.tenancy.people import has_left
from metering.messages import Message, UserError

for _name in ("apprise", "urllib3"):
    logging.getLogger(_name).disabled = True
    logging.getLogger(_name).propagate = False
logging.getLogger("urllib3.connectionpool").disabled = True


class ChannelError(UserError, RuntimeError):
    """The channel did not take a message; the text names no address."""

    code = "channel"


@cache
def _apprise() -> Any:
    """The library with its plugins, loaded when first needed: there are many, and they warn about old modules of Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import apprise

        apprise.Apprise.instantiate("json://localhost")
    return apprise


def is_address(url: str) -> bool:
    """Whether Apprise knows how to send there."""
    return _apprise().Apprise.instantiate(url, suppress_exceptions=True) is not None


def send(channel: Channel, *, title: str, body: str, attachment: Path | None = None) -> None:
    """Send, or raise ChannelError. Returns only after the other side took it. `attachment`: a file that goes with it."""
    apprise = _apprise()
    postman = apprise.Apprise(asset=apprise.AppriseAsset(app_id="Suanpan", app_desc="Suanpan", secure_logging=True))
    if not postman.add(_address(channel)):
        raise ChannelError(Message("%(name)s: its address is none that can be sent to", name=channel.name))
    with_it = {} if attachment is None else {"attach": str(attachment)}
    if not postman.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT, **with_it):
        raise ChannelError(Message("%(name)s: did not take the message", name=channel.name))


def _address(channel: Channel) -> str:
    if channel.url:
        return channel.url
    if has_left(channel.mail):
        raise ChannelError(Message("%(name)s: the account of that address is closed; choose another", name=channel.name))
    if not settings.ALERT_MAIL_URL:
        raise ChannelError(Message(
            "mail cannot be sent: set ALERT_MAIL_URL to the mail server, such as mailtos://user:password@host"
        ))
    parts = urlsplit(settings.ALERT_MAIL_URL)
    query = "&".join(filter(None, (parts.query, urlencode({"to": channel.mail}, quote_via=quote))))
    return urlunsplit((parts.scheme, parts.netloc, parts.path, query, ""))
