"""What the meters of the building counted in a month, told by whoever reads them."""

from django.db import models
from django.db.models import Q

from billing.invoicing.models.invoices import BillingPeriod


class MeterReading(models.Model):
    """KWh that a cluster took in a month, at the building's meter. The last one told counts; none is ever changed.

    `shared_kwh`: of it, what no device is charged with by plan: switches, storage, devices that nobody held.
    """

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="meter_readings")
    cluster = models.CharField(max_length=512)
    metered_kwh = models.DecimalField(max_digits=20, decimal_places=3)
    shared_kwh = models.DecimalField(max_digits=20, decimal_places=3, default=0)
    source = models.CharField(max_length=500, help_text="which meter, which export")
    told_by = models.CharField(max_length=200)
    told_at = models.DateTimeField()

    class Meta:
        ordering = ["id"]
        constraints = [
            models.CheckConstraint(
                condition=Q(metered_kwh__gt=0, shared_kwh__gte=0) & Q(shared_kwh__lte=models.F("metered_kwh")),
                name="a_meter_counts_forward",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.cluster} {self.metered_kwh} kWh"
