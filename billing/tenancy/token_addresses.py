"""From which addresses a token is used: the first use from an address is in the audit log, the next ones are not.

A token that is used from where it never was may be in other hands. A gateway keeps its address, so that it makes one entry
and not one per report; of more than MOST_A_DAY new addresses of a token in a day the rest goes unnoted until the next day.
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
"""What this process saw today, so that it asks the database once a day for each token and address."""


def token_address_is_known(*, token: ApiToken, meta: Mapping[str, Any], now: datetime) -> bool:
    """Whether this process has seen the token from there today; asks nobody."""
    return _known.get(_key(token, meta)) == now.date()


def token_address_note(*, token: ApiToken, meta: Mapping[str, Any], now: datetime) -> None:
    """Remember from where a token is used, and put a new address into the audit log."""
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
    """The client behind as many proxies as TRUSTED_PROXIES says; empty where it cannot be known."""
    request = HttpRequest()
    request.META = {name: meta[name] for name in OF_THE_CLIENT if meta.get(name)}
    try:
        return str(get_adapter().get_client_ip(request)) if request.META else ""
    except (PermissionDenied, ImproperlyConfigured):  # fewer addresses than TRUSTED_PROXIES says
        return ""


def client_network(meta: Mapping[str, Any]) -> str:
    """Whose requests count as those of one: the IPv4 address, the first 64 bits of an IPv6 address; empty if unknown."""
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
