from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("rates", "0010_allocation_policies")]

    operations = [
        migrations.AddField(
            model_name="efficiencypolicy",
            name="penalise_on",
            field=models.CharField(
                choices=[("hfu", "hfu"), ("mfu", "mfu")], default="hfu", help_text="what hfu_below bounds", max_length=8
            ),
        ),
    ]
