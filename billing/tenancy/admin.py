"""People and the teams they may see; everything that daily users need is in the portal."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User

from billing.tenancy.models import Membership


class MembershipInline(admin.TabularInline):
    """Teams of a person, beside the person."""

    model = Membership
    extra = 1


class PersonAdmin(UserAdmin):
    """Accounts with their memberships."""

    inlines = [MembershipInline]


admin.site.unregister(User)
admin.site.register(User, PersonAdmin)
