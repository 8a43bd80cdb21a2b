"""People and the teams they may see; everything that daily users need is in the portal."""

from allauth.account.models import EmailAddress
from allauth.socialaccount.models import SocialApp, SocialToken
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.forms import ModelForm
from django.http import HttpRequest
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from billing.tenancy.actors import actor_of
from billing.tenancy.models import Membership
from billing.tenancy.people import account_active_set


class MembershipInline(TabularInline):
    """Teams of a person, beside the person."""

    model = Membership
    extra = 1


class PersonAdmin(UserAdmin, ModelAdmin):
    """Accounts with their memberships."""

    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    inlines = [MembershipInline]
    filter_horizontal = ()
    list_filter = ("is_active", "is_superuser")
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        (gettext_lazy("Personal info"), {"fields": ("first_name", "last_name", "email")}),
        (gettext_lazy("Permissions"), {"fields": ("is_active", "is_staff", "is_superuser")}),
        (gettext_lazy("Important dates"), {"fields": ("last_login", "date_joined")}),
    )

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> list[str]:
        """An account keeps its name: history refers to it."""
        return [*super().get_readonly_fields(request, obj), *(["username"] if obj else [])]

    def save_model(self, request: HttpRequest, obj: User, form: "ModelForm[User]", change: bool) -> None:
        """An account that is switched off here loses its sessions and tokens as everywhere."""
        super().save_model(request, obj, form, change)
        if change and "is_active" in form.changed_data:
            account_active_set(user=obj, active=obj.is_active, actor=actor_of(request))


for model in (User, Group, EmailAddress, SocialApp, SocialToken):  # groups give no right here, providers are settings
    admin.site.unregister(model)
admin.site.register(User, PersonAdmin)
