"""People and the teams they may see; everything that daily users need is in the portal."""

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from billing.tenancy.models import Membership


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

    def get_readonly_fields(self, request: HttpRequest, obj: User | None = None) -> list[str]:
        """An account keeps its name: history refers to it."""
        return [*super().get_readonly_fields(request, obj), *(["username"] if obj else [])]


class GroupAdmin(DjangoGroupAdmin, ModelAdmin):
    """Django's groups, which no rule of billing asks for."""


for model, page in ((User, PersonAdmin), (Group, GroupAdmin)):
    admin.site.unregister(model)
    admin.site.register(model, page)
