"""Root URLconf: pages and endpoints."""

from allauth.account.decorators import secure_admin_login
from django.contrib import admin
from django.http import Http404
from django.urls import include, path
from django.views.defaults import page_not_found
from django.views.i18n import set_language

from billing.api.health import healthz, readyz
from billing.api.mcp import McpEndpoint
from billing.api.metrics import metrics
from billing.api.telemetry import LogsEndpoint, TracesEndpoint
from billing.settings.backchannel_logout import backchannel_logout
from billing.settings.identity import SignIn, local_password_set, sign_in_callback

# The admin's sign-in has the same limits and second factor as the portal's.
admin.site.login = secure_admin_login(admin.site.login)  # type: ignore[method-assign]  # as allauth documents it

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("api/v1/", include("billing.api.urls")),
    path("mcp", McpEndpoint.as_view(), name="mcp"),
    path("v1/traces", TracesEndpoint.as_view(), name="otlp-traces"),  # default paths of OTLP exporters
    path("v1/logs", LogsEndpoint.as_view(), name="otlp-logs"),
    path("i18n/setlang/", set_language, name="set_language"),
    path("login/", SignIn.as_view()),
    path("account/password/set/", local_password_set),
    path("account/oidc/oidc/login/callback/", sign_in_callback),
    path("account/oidc/oidc/backchannel-logout/", backchannel_logout),
    path("account/3rdparty/", page_not_found, {"exception": Http404()}),  # identities are not linked
    path("account/email/", page_not_found, {"exception": Http404()}),  # mail addresses would merge accounts
    path("account/", include("allauth.urls")),
    path("admin/", admin.site.urls),
    path("", include("billing.portal.urls")),
]
