"""Administration of people and the teams they may see; daily work is in the portal."""

from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from billing.tenancy.actors import actor_of
from billing.tenancy.labels import ROLE
from billing.tenancy.models import Membership
from billing.tenancy.people import account_active_set, first_password_forget, first_password_note


class MembershipInline(TabularInline):
    model = Membership
    extra = 1
    hide_title = True

    def formfield_for_choice_field(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the form field with the portal's names of roles."""
        return super().formfield_for_choice_field(db_field, request, **{**kwargs, "choices": list(ROLE.items())})


class PersonAdmin(UserAdmin, ModelAdmin):
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
        """Return the fields that are read-only: names, to which history refers, and superuser status except to remove it."""
        kept = ["username"] if obj else []
        if obj is None or not obj.is_superuser or obj.pk == request.user.pk:
            kept.append("is_superuser")
        return [*super().get_readonly_fields(request, obj), *kept]

    def save_model(self, request: HttpRequest, obj: User, form: "ModelForm[User]", change: bool) -> None:
        """Save an account; one that is deactivated here loses its sessions and tokens, as everywhere."""
        super().save_model(request, obj, form, change)
        if not change and obj.has_usable_password():
            first_password_note(obj)
        if change and "is_active" in form.changed_data:
            account_active_set(user=obj, active=obj.is_active, actor=actor_of(request))


    def user_change_password(self, request: HttpRequest, id: str, form_url: str = "") -> HttpResponse:
        """Set a password, which is a first one if it is set for another account."""
        before = self.get_object(request, unquote(id))
        response: HttpResponse = super().user_change_password(request, id, form_url)
        person = self.get_object(request, unquote(id))
        if before is not None and person is not None and person.password != before.password:
            if person.pk == request.user.pk or not person.has_usable_password():
                first_password_forget(person)
            else:
                first_password_note(person)
        return response


class SecondFactorAdmin(ModelAdmin):
    """Second factors, deletable for people who lost theirs; the secret is encrypted, so none is entered by hand."""

    list_display = ("user", "type", "created_at", "last_used_at")
    list_filter = ("type",)
    fields = list_display

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Authenticator | None = None) -> bool:
        return False


class ProviderAccountAdmin(ModelAdmin):
    """Links from accounts of the identity provider to local accounts."""

    list_display = ("user", "uid", "provider")
    list_filter = ("provider",)
    search_fields = ("uid", "user__username", "user__email")
    raw_id_fields = ("user",)
    readonly_fields = ("extra_data",)


for model in (User, Group, EmailAddress, SocialApp, SocialToken, Authenticator, SocialAccount):
    admin.site.unregister(model)  # groups give no right here, providers come from settings; the others are registered below
admin.site.register(User, PersonAdmin)
admin.site.register(Authenticator, SecondFactorAdmin)
admin.site.register(SocialAccount, ProviderAccountAdmin)
