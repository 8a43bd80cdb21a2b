"""Form to change a password."""

from allauth.account.forms import ChangePasswordForm
from django.forms import ValidationError
from django.utils.translation import gettext as _


class OwnPasswordForm(ChangePasswordForm):
    """Form that refuses the present password: another person may know it."""

    def clean_password1(self) -> str:
        """Return the new password.  Raises ValidationError where it is the present one."""
        chosen: str = self.cleaned_data["password1"]
        if self.user.check_password(chosen):
            raise ValidationError(_("Choose another password than the one you have."))
        return chosen
