"""Addresses of pages in what leaves the installation: mails and alerts."""

from typing import Any

from django.conf import settings
from django.urls import reverse


def portal_link(page: str, *args: Any) -> str:
    """The whole address of a page of the portal by its name; empty where the address of the portal is not set."""
    return settings.PORTAL_URL.rstrip("/") + reverse(f"portal:{page}", args=args) if settings.PORTAL_URL else ""
