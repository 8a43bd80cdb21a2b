"""Addresses of a token's use: the first use from an address is audited, later ones are not.

A token used from a new address may be in wrong hands. A gateway keeps its address, so that it makes one entry and not one
per report; beyond MOST_A_DAY new addresses of a token in a day, further ones are recorded on later days only.
"""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Final

from allauth.account.adapter import get_adapter
from allauth.core.internal.ratelimit import truncate_ip
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, PermissionDenied
from django.db import connection, transaction
from django.http import HttpRequest

from billing.tenancy.actors import actor_of_token
from billing.tenancy.audit import audit_record
from billing.tenancy.models import ApiToken, TokenAddress

MOST_A_DAY: Final = 20
MOST_KNOWN: Final = 10_000
OF_THE_CLIENT: Final = ("REMOTE_ADDR", "HTTP_X_FORWARDED_FOR")
_known: dict[tuple[int, str, str], date] = {}
"""Cache of this process for the day, so that it queries the database once a day for each token and address."""


def token_address_is_known(*, token: ApiToken, meta: Mapping[str, Any], now: datetime) -> bool:
    """Return True if this process has seen the token from there today; no query."""
    return _known.get(_key(token, meta)) == now.date()


def token_address_note(*, token: ApiToken, meta: Mapping[str, Any], now: datetime) -> None:
    """Remember the address of a token's use, and audit a new one."""
    if token_address_is_known(token=token, meta=meta, now=now):
        return
    if address := client_address(meta):
        _store(token, address, now)
    if len(_known) >= MOST_KNOWN:
        _known.clear()
    _known[_key(token, meta)] = now.date()


def _key(token: ApiToken, meta: Mapping[str, Any]) -> tuple[int, str, str]:
    remote, forwarded = OF_THE_CLIENT
    return token.pk, str(meta.get(remote, "")), str(meta.get(forwarded, ""))


def client_address(meta: Mapping[str, Any]) -> str:
    """Return the client's address behind TRUSTED_PROXIES proxies; "" if unknown."""
    request = HttpRequest()
    request.META = {name: meta[name] for name in OF_THE_CLIENT if meta.get(name)}
    try:
        return str(get_adapter().get_client_ip(request)) if request.META else ""
    except (PermissionDenied, ImproperlyConfigured):  # fewer addresses than TRUSTED_PROXIES
        return ""


def client_network(meta: Mapping[str, Any]) -> str:
    """Return the network whose requests count together: the IPv4 address, or 64 bits of an IPv6 address; "" if unknown."""
    return truncate_ip(client_address(meta) if settings.ALLAUTH_TRUSTED_PROXY_COUNT else str(meta.get("REMOTE_ADDR", "")))


def _store(token: ApiToken, address: str, now: datetime) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        if TokenAddress.objects.filter(token=token, first_used_on=now.date()).count() >= MOST_A_DAY:
            return
        cursor.execute(
            """INSERT INTO tenancy_tokenaddress (token_id, address, first_used_on) VALUES (%s, %s, %s)
               ON CONFLICT (token_id, address) DO NOTHING RETURNING id""",
            [token.pk, address[:64], now.date()],
        )
        if cursor.fetchone() is not None:
            detail = {"address": address, "prefix": token.prefix}
            audit_record(actor=actor_of_token(token), action="api_token_first_use", subject=token.name, detail=detail)
