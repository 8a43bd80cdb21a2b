"""The administration: what is rare. It opens to staff and to the role `admin`; times are those of the installation."""

from collections.abc import Callable
from typing import Any, Final

from django.http import HttpRequest, HttpResponseBase
from django.template.response import SimpleTemplateResponse
from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from unfold.sites import UnfoldAdminSite

from billing.tenancy.access import Right, access_of
from billing.tenancy.selectors import NoSetupError, billing_setup

WORDS: Final = {
    "auth": _("People"), "User": _("Accounts"), "mfa": _("Sign-in"), "Authenticator": _("Second factors"),
    "socialaccount": _("Identity provider"), "SocialAccount": _("Accounts there"), "rates": _("Prices"),
    "PriceDraft": _("Drafts of price lists"), "PriceVersion": _("Price lists"), "CostSheet": _("Cost sheets"),
    "TokenCostSheet": _("Load tests of models"), "EfficiencyPolicy": _("Efficiency policies"),
}  # fmt: skip
"""What its parts and tables are called."""


class Administration(UnfoldAdminSite):
    """Django's, as `admin.site`."""

    def has_permission(self, request: HttpRequest) -> bool:
        """Whether somebody may open it; what they find there each table asks by itself."""
        return request.user.is_active and (request.user.is_staff or access_of(request.user).may(Right.MANAGE_PEOPLE))

    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        """The tables by part, in the words of the portal."""
        return [
            {**app, "name": WORDS[app["app_label"]],
             "models": [{**table, "name": WORDS[table["object_name"]]} for table in app["models"]]}
            for app in super().get_app_list(request, app_label)
        ]  # fmt: skip

    def admin_view(self, view: Callable[..., Any], cacheable: bool = False) -> Callable[..., Any]:
        """A view whose times are read and written in the zone of the installation."""
        inner = super().admin_view(view, cacheable)

        def in_zone(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            with timezone.override(_zone()):
                answer = inner(request, *args, **kwargs)
                return answer.render() if isinstance(answer, SimpleTemplateResponse) else answer

        return in_zone


def _zone() -> str:
    try:
        return billing_setup().zone
    except NoSetupError:
        return "UTC"
