"""Limit of invalid tokens per client address; beyond it the address is paused for a minute.

All processes count together, in Django's cache. Each caches the paused addresses, so that more such tokens cost nothing.
A valid token still passes from a paused address: behind one proxy or NAT there are many clients.
"""

import logging
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address, ip_network
from time import monotonic
from typing import Any, Final

from allauth.core import ratelimit
from django.db import DatabaseError
from django.http import HttpRequest

from billing.tenancy.token_addresses import client_address

logger = logging.getLogger(__name__)
FAILED: Final = "api_token_failed"
"""Action whose limit is in ACCOUNT_RATE_LIMITS."""
WAIT_SECONDS: Final = 60
MOST_WAITING: Final = 10_000

_paused: dict[str, float] = {}
"""End of each address's pause, on the monotonic clock."""


def token_failures_exceeded(meta: Mapping[str, Any]) -> bool:
    """Return True if the client's address is paused; no query."""
    return bool(_paused) and _paused.get(_network(meta), 0.0) > monotonic()


def token_failure_count(meta: Mapping[str, Any]) -> bool:
    """Count an invalid token; return True while within the limit. Without the cache nothing is counted."""
    network = _network(meta)
    try:
        within = ratelimit.consume(HttpRequest(), action=FAILED, key=network)
    except DatabaseError as error:
        logger.warning("tokens that are not valid are not counted: %s", error)
        return True
    if not within:
        if len(_paused) >= MOST_WAITING:
            _paused.clear()
        _paused[network] = monotonic() + WAIT_SECONDS
    return within


def _network(meta: Mapping[str, Any]) -> str:
    """Return the client's address, for IPv6 its /64 network, which one client has; "" if unknown."""
    address = client_address(meta)
    if not address or not isinstance(ip_address(address), IPv6Address):
        return address
    return str(ip_network((address, 64), strict=False))
