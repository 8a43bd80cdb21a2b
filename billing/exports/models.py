"""Tables of exports: FOCUS files as sets of parts."""

from django.db import models


class FocusSet(models.Model):
    """A data set of a month as it was last made.

    `documents`: the hash of the numbers and hashes of those it is of, and of the release that made it.
    """

    month = models.CharField(max_length=7)
    data_set = models.CharField(max_length=32)
    documents = models.CharField(max_length=64)
    rows = models.IntegerField()
    made_at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["month", "data_set"], name="one_focus_set_per_month")]

    def __str__(self) -> str:
        return f"{self.data_set} of {self.month}"


class FocusPart(models.Model):
    """Some of its rows as Parquet, the `first` of them counted from 0."""

    focus_set = models.ForeignKey(FocusSet, on_delete=models.CASCADE, related_name="parts", db_index=False)
    first = models.IntegerField()
    content = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["focus_set", "first"], name="one_focus_part_per_row")]
