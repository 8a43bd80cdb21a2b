"""Delivery through Apprise: one message to one channel. An address is a secret, so this module never logs or repeats it."""

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

# both can log the address of a request, which is a secret
for _name in ("apprise", "urllib3"):
    logging.getLogger(_name).disabled = True
    logging.getLogger(_name).propagate = False
logging.getLogger("urllib3.connectionpool").disabled = True


class ChannelError(UserError, RuntimeError):
    """Error: the channel did not accept a message; the text names no address."""

    code = "channel"


@cache
def _apprise() -> Any:
    """Load Apprise with its plugins on first use: there are many, and they warn about deprecated modules of Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import apprise

        # loads the plugins, while warnings are off
        apprise.Apprise.instantiate("json://localhost")
    return apprise


def is_address(url: str) -> bool:
    """Return True if Apprise can send to the address."""
    return _apprise().Apprise.instantiate(url, suppress_exceptions=True) is not None


def send(channel: Channel, *, title: str, body: str, attachment: Path | None = None) -> None:
    """Send a message, with a file as `attachment`, and return once the channel accepted it.  Raises ChannelError."""
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
