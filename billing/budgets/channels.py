"""Delivery to one channel: a message through Apprise, or an event to a webhook.

Addresses and signing keys are secrets, so this module never logs or repeats them.
"""

import base64
import binascii
import hmac
import json
import logging
import warnings
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from django.conf import settings

from billing.budgets.models import Channel
from billing.tenancy.people import has_left
from metering.messages import Message, UserError

# both can log the address of a request, which is a secret
for _name in ("apprise", "urllib3", "httpx", "httpcore"):
    logging.getLogger(_name).disabled = True
    logging.getLogger(_name).propagate = False
logging.getLogger("urllib3.connectionpool").disabled = True

KEY_PREFIX: Final = "whsec_"
KEY_BYTES: Final = range(24, 65)
WEBHOOK_SECONDS: Final = 10


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
    if channel.events:
        raise ChannelError(Message("%(name)s: is a webhook, which takes events and no messages", name=channel.name))
    apprise = _apprise()
    postman = apprise.Apprise(asset=apprise.AppriseAsset(app_id="Suanpan", app_desc="Suanpan", secure_logging=True))
    if not postman.add(_address(channel)):
        raise ChannelError(Message("%(name)s: its address is none that can be sent to", name=channel.name))
    with_it = {} if attachment is None else {"attach": str(attachment)}
    if not postman.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT, **with_it):
        raise ChannelError(Message("%(name)s: did not take the message", name=channel.name))


def is_webhook_address(url: str) -> bool:
    """Return True for an address to which events can be posted."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
    except ValueError:
        return False


def signing_key(secret: str) -> bytes | None:
    """Return the key of a secret (`whsec_` and Base64); None if it is none, or not of 24 to 64 bytes."""
    try:
        key = base64.b64decode(secret.removeprefix(KEY_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if secret.startswith(KEY_PREFIX) and len(key) in KEY_BYTES else None


def signature(secret: str, identity: str, timestamp: int, body: str) -> str:
    """Return the signature of an event: HMAC-SHA256 over id, time in seconds and body, in Base64.

    >>> secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    >>> signature(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, '{"test": 2432232314}')
    'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE='

    Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md.
    """
    key = signing_key(secret)
    if key is None:
        raise ValueError("this secret is no signing key")
    signed = hmac.digest(key, f"{identity}.{timestamp}.{body}".encode(), sha256)
    return "v1," + base64.b64encode(signed).decode()


def event_text(kind: str, identity: str, at: datetime, data: Mapping[str, Any]) -> str:
    """Return an event as JSON text: its type, id, time and data."""
    return json.dumps({"type": kind, "id": identity, "timestamp": at.isoformat(), "data": data}, ensure_ascii=False)


def post_event(channel: Channel, *, identity: str, body: str, now: datetime) -> None:
    """Post a signed event to a webhook and return once it answered 2xx.  Raises ChannelError, which names no address."""
    import httpx

    timestamp = int(now.timestamp())
    headers = {
        "content-type": "application/json", "webhook-id": identity, "webhook-timestamp": str(timestamp),
        "webhook-signature": signature(channel.secret, identity, timestamp, body),
    }  # fmt: skip
    try:
        # the body of the answer is not read: it may be endless
        with httpx.stream("POST", channel.url, content=body.encode(), headers=headers, timeout=WEBHOOK_SECONDS) as answer:
            status = answer.status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = Message("%(name)s: no answer (%(error)s)", name=channel.name, error=type(error).__name__)
        raise ChannelError(problem) from None
    if not 200 <= status < 300:
        raise ChannelError(Message("%(name)s: answered %(status)s", name=channel.name, status=status))


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
