"""PURE: non-negative least squares over exact rationals, with a measure of how well the runs distinguish the classes."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from metering.messages import Message, UserError

Matrix = Sequence[Sequence[Fraction]]


class CollinearError(UserError, ValueError):
    """Columns that are multiples of each other: the runs say nothing about the single classes."""

    code = "load_test_collinear"


@dataclass(frozen=True, slots=True)
class Fit:
    """Coefficients >= 0 that minimise the squared residuals."""

    coefficients: tuple[Fraction, ...]
    fitted_sum: Fraction
    true_sum: Fraction
    condition_squared: Fraction
    residual_squared: Fraction

    @property
    def recovery_scale(self) -> Fraction:
        """Return the factor on every coefficient that makes the fitted sum the true one."""
        return self.true_sum / self.fitted_sum


def fit_non_negative(rows: Matrix, targets: Sequence[Fraction]) -> Fit:
    """Minimise the sum of (row . x - target)^2 with x >= 0.  Raises CollinearError.

    The unknowns are few, so every subset of them is solved by its normal equations and the best feasible one is taken.

    >>> fit_non_negative([(Fraction(1), Fraction(0)), (Fraction(0), Fraction(2)), (Fraction(1), Fraction(2))],
    ...                  [Fraction(3), Fraction(8), Fraction(11)]).coefficients
    (Fraction(3, 1), Fraction(4, 1))
    """
    columns = range(len(rows[0]))
    condition = _condition_squared(rows, columns)
    best: tuple[Fraction, tuple[Fraction, ...]] | None = None
    for size in range(len(columns), 0, -1):
        for chosen in combinations(columns, size):
            solved = _solve(*_normal_equations(rows, targets, chosen))
            if any(value < 0 for value in solved):
                continue
            full = tuple(solved[chosen.index(column)] if column in chosen else Fraction(0) for column in columns)
            squares = _residual(rows, targets, full)
            if best is None or squares < best[0]:
                best = squares, full
    if best is None:
        raise CollinearError(Message("no class has a cost above 0"))
    fitted = sum((_dot(row, best[1]) for row in rows), Fraction(0))
    total = sum((target * target for target in targets), Fraction(0))
    return Fit(best[1], fitted, sum(targets, Fraction(0)), condition, best[0] / total)


def _normal_equations(
    rows: Matrix, targets: Sequence[Fraction], chosen: Sequence[int]
) -> tuple[list[list[Fraction]], list[Fraction]]:
    gram = [[sum((row[i] * row[j] for row in rows), Fraction(0)) for j in chosen] for i in chosen]
    right = [sum((row[i] * target for row, target in zip(rows, targets, strict=True)), Fraction(0)) for i in chosen]
    return gram, right


def _solve(matrix: Sequence[Sequence[Fraction]], right: Sequence[Fraction]) -> list[Fraction]:
    """Solve a linear system exactly by Gauss-Jordan elimination.  Raises CollinearError where the matrix is singular."""
    size = len(matrix)
    work = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    for column in range(size):
        pivot = next((row for row in range(column, size) if work[row][column]), None)
        if pivot is None:
            raise CollinearError(Message("the runs do not distinguish the token classes: vary the ratio of input to output"))
        work[column], work[pivot] = work[pivot], work[column]
        work[column] = [value / work[column][column] for value in work[column]]
        for row in range(size):
            if row != column:
                factor = work[row][column]
                work[row] = [a - factor * b for a, b in zip(work[row], work[column], strict=True)]
    return [row[size] for row in work]


def _condition_squared(rows: Matrix, columns: Sequence[int]) -> Fraction:
    """Return the squared Frobenius condition number of the columns scaled to length one: n x sum of inflation factors.

    The Frobenius number is never below the spectral condition number, and needs no root.
    """
    gram, _ = _normal_equations(rows, [Fraction(0)] * len(rows), columns)
    size = len(gram)
    inflation = Fraction(0)
    for index in range(size):
        unit = [Fraction(int(row == index)) for row in range(size)]
        inflation += gram[index][index] * _solve(gram, unit)[index]
    return size * inflation


def _residual(rows: Matrix, targets: Sequence[Fraction], coefficients: Sequence[Fraction]) -> Fraction:
    return sum(
        ((_dot(row, coefficients) - target) ** 2 for row, target in zip(rows, targets, strict=True)), Fraction(0)
    )


def _dot(row: Sequence[Fraction], coefficients: Sequence[Fraction]) -> Fraction:
    return sum((a * b for a, b in zip(row, coefficients, strict=True)), Fraction(0))
