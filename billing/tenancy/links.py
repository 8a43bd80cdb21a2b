"""Links to portal pages in mails and alerts."""

from typing import Any

from django.conf import settings
from django.urls import reverse


def portal_link(page: str, *args: Any) -> str:
    """Return the absolute URL of a portal page by its name; "" if the portal's address is not set."""
    return settings.PORTAL_URL.rstrip("/") + reverse(f"portal:{page}", args=args) if settings.PORTAL_URL else ""
