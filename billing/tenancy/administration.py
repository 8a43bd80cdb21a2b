"""Administration site for rare changes, open to staff and the role `admin`; times are in the installation's zone."""

from collections.abc import Callable
from typing import Any, Final

from django.apps import apps
from django.contrib.admin import AdminSite
from django.http import HttpRequest, HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.sites import UnfoldAdminSite

from billing.tenancy.access import Right, access_of
from billing.tenancy.selectors import NoSetupError, billing_setup

PARTS: Final = {
    "auth": _("People"), "mfa": _("Sign-in"), "rates": _("Prices"), "socialaccount": _("Identity provider"),
}  # fmt: skip
TABLES: Final = {
    "User": (_("account"), _("accounts")),
    "Membership": (_("role"), _("roles")),
    "Authenticator": (_("second factor"), _("second factors")),
    "SocialAccount": (_("account of the provider"), _("accounts of the provider")),
    "PriceDraft": (_("draft of a price list"), _("drafts of price lists")),
    "Step": (_("step"), _("steps")),
    "PriceVersion": (_("price list"), _("price lists")),
    "GpuPrice": (_("GPU price"), _("GPU prices")),
    "TokenPrice": (_("token price"), _("token prices")),
    "CostSheet": (_("cost sheet"), _("cost sheets")),
    "TokenCostSheet": (_("load test of a model"), _("load tests of models")),
    "EfficiencyPolicy": (_("efficiency policy"), _("efficiency policies")),
}
"""Singular and plural name of each table."""
FIELDS: Final = {
    "name": _("Name"), "user": _("Account"), "team": _("Team"), "role": _("Role"), "type": _("Type"),
    "provider": _("Provider"), "uid": _("Identifier there"), "extra_data": _("What the provider says"),
    "first_name": _("First name"), "last_name": _("Last name"), "email": _("Email address"), "is_active": _("Active"),
    "is_staff": _("Staff status"), "is_superuser": _("Superuser status"), "last_login": _("Last login"),
    "date_joined": _("Date joined"), "created_at": _("Created at"), "last_used_at": _("Last used at"),
    "currency": _("Currency"), "valid_from": _("Valid from"), "valid_until": _("Valid until"),
    "published_at": _("Published at"), "published_by": _("Published by"), "sealed": _("Complete"), "draft": _("Draft"),
    "accelerator": _("Accelerator"), "resource": _("Resource"), "price": _("Price"), "cost_sheet": _("Cost sheet"),
    "facility_kw": _("Kilowatts at the meter"), "model": _("Model"), "gpus": _("Number of GPUs"), "engine": _("Engine"),
    "precision": _("Precision"), "inputs": _("Inputs"), "result": _("Result"), "reason": _("Reason"),
    "revision": _("Revision"), "sha256": _("SHA256"), "at": _("When"), "actor": _("Who"), "comment": _("Comment"),
    "hfu_below": _("Penalty below"), "penalty": _("Penalty, share of the price"), "mfu_above": _("Reward above an MFU of"),
    "reward": _("Reward, share of the price"), "min_minutes": _("Minutes that a job must run"),
    "min_gpu_seconds": _("GPU-seconds that a job must have"),
    "min_coverage": _("Share of its time that must be measured"), "width": _("Width of the linear form"),
    "shadow": _("Only shown: no money moves"), "classes": _("Classes of workloads"),
    "unrewarded": _("Teams without a reward"), "gather_short": _("Short jobs are judged together"),
    "neutral_pool": _("Rewards are paid by penalties: the sum is 0"),
}  # fmt: skip
"""Display name of each field, the same in every table."""


class Administration(UnfoldAdminSite):
    """Django's admin, installed as `admin.site`."""

    index_title = _("Administration")

    def has_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may open the administration; each table checks its own permissions."""
        return request.user.is_active and (request.user.is_staff or access_of(request.user).may(Right.MANAGE_PEOPLE))

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Callable[..., Any]:
        """Wrap a view so that its times are read and written in the zone of the installation."""
        inner = super().admin_view(view, cacheable)

        def in_zone(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            with timezone.override(_zone()):
                answer = inner(request, *args, **kwargs)
                return answer.render() if isinstance(answer, SimpleTemplateResponse) else answer

        return in_zone


def words_given(site: AdminSite) -> None:
    """Set the display names of apps, tables and fields of the administration.

    Most tables belong to other apps, and a name in their models would need a migration. Django keeps the declared names for
    migrations, so that names set afterwards create none.
    """
    for table, shown in site._registry.items():
        apps.get_app_config(table._meta.app_label).verbose_name = PARTS[table._meta.app_label]
        for model in (table, *(inline.model for inline in shown.inlines)):
            model._meta.verbose_name, model._meta.verbose_name_plural = TABLES[model.__name__]
            for field in model._meta.fields:
                field.verbose_name = FIELDS.get(field.name, field.verbose_name)


def _zone() -> str:
    try:
        return billing_setup().zone
    except NoSetupError:
        return "UTC"
