"""Tables of exports: FOCUS data sets in parts."""

from django.db import models


class FocusSet(models.Model):
    """Data set of a month as last built.

    `documents`: hash of the numbers and hashes of its documents, and of the release that built it.
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
    """Part of the rows of a data set as Parquet; `first` is the number of its first row, from 0."""

    focus_set = models.ForeignKey(FocusSet, on_delete=models.CASCADE, related_name="parts", db_index=False)
    first = models.IntegerField()
    content = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["focus_set", "first"], name="one_focus_part_per_row")]
