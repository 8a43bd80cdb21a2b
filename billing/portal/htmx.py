"""A request as `django_htmx.middleware.HtmxMiddleware` hands it on."""

from django.http import HttpRequest
from django_htmx.middleware import HtmxDetails


class HtmxRequest(HttpRequest):
    """Says by `htmx` whether a part of a page is asked for; every view gets one, and those that look at it name it."""

    htmx: HtmxDetails
