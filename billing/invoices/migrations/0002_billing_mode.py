"""`BillingMode` is a model of `tenancy` now, with the same table."""

from django.db import migrations


class Migration(migrations.Migration):
    dependencies = [("invoices", "0001_initial"), ("tenancy", "0008_billing_mode")]
    operations = [migrations.SeparateDatabaseAndState(state_operations=[migrations.DeleteModel("BillingMode")])]
