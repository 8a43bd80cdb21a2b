"""Behind a token of nobody is whoever made it: `persons.sql`, which 0007 applies as it is today."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("tenancy", "0004_uses_and_sign_in")]
