"""Teams that a close could not bill, while it billed the others."""

from django.db import models

from billing.invoicing.models.invoices import BillingPeriod


class HeldTeam(models.Model):
    """One team of a month whose charges could not be written: why, since when, and what is at stake where it is known.

    The period stays in `closing` until closing it again has billed every one of them; then the row is gone.
    """

    period = models.ForeignKey(BillingPeriod, on_delete=models.PROTECT, related_name="held_teams")
    team = models.CharField(max_length=64)
    problem = models.TextField()
    amount = models.DecimalField(max_digits=40, decimal_places=2, null=True)
    held_at = models.DateTimeField()

    class Meta:
        ordering = ["team"]
        constraints = [models.UniqueConstraint(fields=["period", "team"], name="held_once_per_period")]

    def __str__(self) -> str:
        return f"{self.period_id} {self.team}"
