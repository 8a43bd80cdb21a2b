"""SCIM 2.0, below /api/v1/scim/v2/."""

from django.urls import path

from billing.api.scim import views
from billing.api.scim.discovery import CONFIG, RESOURCE_TYPES, SCHEMAS

urlpatterns = [
    path("ServiceProviderConfig", views.Discovery.as_view(document=CONFIG), name="scim-config"),
    path("ResourceTypes", views.Listed.as_view(document=RESOURCE_TYPES), name="scim-resource-types"),
    path("ResourceTypes/<str:name>", views.Listed.as_view(document=RESOURCE_TYPES), name="scim-resource-type"),
    path("Schemas", views.Listed.as_view(document=SCHEMAS), name="scim-schemas"),
    path("Schemas/<str:name>", views.Listed.as_view(document=SCHEMAS), name="scim-schema"),
    path("Users", views.Users.as_view(), name="scim-users"),
    path("Users/<int:pk>", views.OneUser.as_view(), name="scim-user"),
    path("Groups", views.Groups.as_view(), name="scim-groups"),
    path("Groups/<int:pk>", views.OneGroup.as_view(), name="scim-group"),
]
