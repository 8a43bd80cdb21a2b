"""Security headers of pages: nothing inline, no other origin, no frames, no storage on disk."""

from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.utils.deprecation import MiddlewareMixin

POLICY: Final[dict[str, str]] = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self' data:",  # the QR code of a second factor is an inline image
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
ADMIN_POLICY: Final = {**POLICY, "script-src": "'self' 'unsafe-eval'", "style-src": "'self' 'unsafe-inline'"}
"""Content security policy of /admin/ only, which is for staff. Scripts within pages do not run there either.

The admin's own files (Alpine in django-unfold) evaluate the expressions of its templates, and its pages have their colours
in a style element: without these two grants its menus and lists do not work, and no nonce or hash can allow an `eval`.
"""

LIMIT_SECONDS: Final = 60
"""Value of Retry-After: limits per address end after it, those per account later."""


class SecurityHeadersMiddleware(MiddlewareMixin):
    """Middleware that adds the content security policy and related headers; pages of signed-in people are not cached."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Content-Security-Policy", policy_of(request.path))
        response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
        if settings.SESSION_COOKIE_NAME in request.COOKIES:
            response.headers.setdefault("Cache-Control", "private, no-store")
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            response.headers.setdefault("Retry-After", str(LIMIT_SECONDS))
        return response


def policy_of(path: str) -> str:
    """Return the content security policy of an address, as header text."""
    directives = ADMIN_POLICY if path.startswith("/admin/") else POLICY
    if path.startswith(("/login/", "/account/")):  # the form of the identity provider's button redirects to it
        directives = {**directives, "form-action": " ".join(["'self'", *_providers()])}
    return "; ".join(f"{name} {value}" for name, value in directives.items())


def _providers() -> list[str]:
    """Return the schemes of the providers: their own addresses may be on any host."""
    apps = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"]
    return sorted({f"{urlsplit(app['settings']['server_url']).scheme}:" for app in apps})
