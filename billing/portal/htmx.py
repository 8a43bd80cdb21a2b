"""HTTP request as `django_htmx.middleware.HtmxMiddleware` passes it on."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails


class HtmxRequest(HttpRequest):
    """Request whose `htmx` is true for a part of a page; every view gets one, and views that use it name the type."""

    htmx: HtmxDetails
