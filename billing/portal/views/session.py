"""Signing in."""

from django.contrib.auth.views import LoginView


class SignIn(LoginView):
    """Django's own form and checks in the look of the portal; whoever is signed in goes on to the overview."""

    template_name = "portal/login.html"
    redirect_authenticated_user = True
