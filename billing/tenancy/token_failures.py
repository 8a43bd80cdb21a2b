"""Tokens that are not valid are counted per address of the client; beyond the limit the address waits a minute.

All processes count together, in the cache of Django. Each remembers who waits, so that more such tokens cost nothing.
A valid token still passes from an address that waits: behind one proxy or NAT there are many clients.
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
"""Its limit is in ACCOUNT_RATE_LIMITS."""
WAIT_SECONDS: Final = 60
MOST_WAITING: Final = 10_000

_paused: dict[str, float] = {}
"""Until when an address waits, on the monotonic clock."""


def token_failures_exceeded(meta: Mapping[str, Any]) -> bool:
    """Whether the client's address waits; asks nobody."""
    return bool(_paused) and _paused.get(_network(meta), 0.0) > monotonic()


def token_failure_count(meta: Mapping[str, Any]) -> bool:
    """Count a token that is not valid; returns whether it is within the limit. Without the cache nothing is counted."""
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
    """The address, of IPv6 the network of 64 bits that one client has; empty where it cannot be known."""
    address = client_address(meta)
    if not address or not isinstance(ip_address(address), IPv6Address):
        return address
    return str(ip_network((address, 64), strict=False))
