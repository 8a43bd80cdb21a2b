from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("tenancy", "0008_disputes_held_above_limits"),
    ]

    operations = [
        migrations.AddField(
            model_name="billingsetup",
            name="address",
            field=models.CharField(blank=True, default="", max_length=500),
        ),
        migrations.AddField(
            model_name="billingsetup",
            name="contact",
            field=models.CharField(blank=True, default="", help_text="who answers for the documents", max_length=200),
        ),
        migrations.AddField(
            model_name="billingsetup",
            name="legal_entity",
            field=models.CharField(blank=True, default="", help_text="whose books the issuer keeps", max_length=200),
        ),
        migrations.AddField(
            model_name="billingsetup",
            name="tax_id",
            field=models.CharField(blank=True, default="", max_length=64),
        ),
        migrations.AddField(
            model_name="team",
            name="legal_entity",
            field=models.CharField(blank=True, default="", max_length=200),
        ),
        migrations.AddField(
            model_name="team",
            name="recipient",
            field=models.CharField(blank=True, default="", help_text="to whose attention documents are", max_length=200),
        ),
    ]
