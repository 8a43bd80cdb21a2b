"""What a browser may do with our pages: nothing inline, nothing from elsewhere, in no frame, kept on no disk."""

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
    "img-src": "'self' data:",  # the picture of a second factor is drawn by the server
    "font-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}
ADMIN_POLICY: Final = {**POLICY, "script-src": "'self' 'unsafe-eval'", "style-src": "'self' 'unsafe-inline'"}
"""For /admin/ alone, which only staff opens and which shows no page of ours. No script of a page runs there either.

The admin's own files (Alpine in django-unfold) evaluate the expressions of its templates, and its pages carry their colours
in a style element: without these two grants its menus and lists do not work, and no nonce or hash can stand for an `eval`.
"""

LIMIT_SECONDS: Final = 60
"""After which a limit per address lets through again; that of an account takes longer."""


class SecurityHeadersMiddleware(MiddlewareMixin):
    """Adds the content security policy and what goes with it; a page of somebody signed in is stored nowhere."""

    def process_response(self, request: HttpRequest, response: HttpResponse) -> HttpResponse:
        response.headers.setdefault("Content-Security-Policy", policy_of(request.path))
        response.headers.setdefault("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
        if settings.SESSION_COOKIE_NAME in request.COOKIES:
            response.headers.setdefault("Cache-Control", "private, no-store")
        if response.status_code == HTTPStatus.TOO_MANY_REQUESTS:
            response.headers.setdefault("Retry-After", str(LIMIT_SECONDS))
        return response


def policy_of(path: str) -> str:
    """The policy for an address, as the header says it."""
    directives = ADMIN_POLICY if path.startswith("/admin/") else POLICY
    if path.startswith(("/login/", "/account/")):  # where the button to the identity provider is
        directives = {**directives, "form-action": " ".join(["'self'", *_providers()])}
    return "; ".join(f"{name} {value}" for name, value in directives.items())


def _providers() -> list[str]:
    """Where a sign-in may lead: a provider's own addresses may lie on any host of its scheme."""
    apps = settings.SOCIALACCOUNT_PROVIDERS["openid_connect"]["APPS"]
    return sorted({f"{urlsplit(app['settings']['server_url']).scheme}:" for app in apps})
