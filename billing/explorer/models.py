"""Sums of months for the explorer, which can be deleted and made again at any time; views that people saved, and reports."""

from django.db import models


class MonthCube(models.Model):
    """The lines of a month, shared out by day and workload (`billing.explorer.building`).

    `source`: what it was made of; it is of use while that is the same. `rows`: how many there are.
    """

    month = models.CharField(max_length=7, unique=True)
    source = models.CharField(max_length=200)
    as_of = models.DateTimeField()
    took_ms = models.IntegerField()
    rows = models.IntegerField()
    facts = models.BinaryField(help_text="whether it is a preview, and what it leaves out")

    def __str__(self) -> str:
        return f"{self.month} as of {self.as_of}"


class CubeColumn(models.Model):
    """One column of a cube, compressed: names with their codes, or whole numbers."""

    cube = models.ForeignKey(MonthCube, on_delete=models.CASCADE, related_name="columns")
    name = models.CharField(max_length=32)
    content = models.BinaryField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["cube", "name"], name="one_column_of_a_name")]

    def __str__(self) -> str:
        return f"{self.cube_id} {self.name}"
