"""Where each door is."""

from django.contrib import admin
from django.urls import include, path

from billing.api.health import healthz, readyz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("api/v1/", include("billing.api.urls")),
    path("admin/", admin.site.urls),
    path("", include("billing.portal.urls")),
]
