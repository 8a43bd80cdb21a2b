"""The picture of a budget's period: spending day by day, the budget, and where the forecast says it ends.

Coordinates are whole numbers in a box of 1000 x 280, computed from decimals; the table beside the picture has the figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction

from billing.budgets.models import BudgetStanding

WIDTH, HEIGHT = 1000, 280
HEADROOM = Fraction(108, 100)


@dataclass(frozen=True, slots=True)
class DayRow:
    """One day of the period so far: what it cost, and the sum since the period began."""

    day: date
    amount: Decimal
    total: Decimal


@dataclass(frozen=True, slots=True)
class Chart:
    """What the template draws; empty strings where there is nothing to draw."""

    rows: Sequence[DayRow]
    actual: str
    middle: str
    band: str
    budget_y: int
    now_x: int
    now_y: int
    width: int = WIDTH
    height: int = HEIGHT


def chart_of(
    standing: BudgetStanding, days: Sequence[tuple[date, Decimal]], first: date, count: int, elapsed: Fraction
) -> Chart:
    """The chart of a standing; `days` are the complete days of the period, `elapsed` of its `count` days have passed."""
    rows = _rows(days, first, min(int(elapsed), count))
    ends = [standing.amount, standing.spent, standing.forecast_p90, standing.forecast_p50]
    top = max(Fraction(end) for end in ends if end is not None) * HEADROOM or Fraction(1)

    def x(day: Fraction | int) -> int:
        return int(Fraction(day) * WIDTH / count)

    def y(amount: Decimal) -> int:
        return HEIGHT - int(min(max(Fraction(amount) / top, Fraction(0)), Fraction(1)) * HEIGHT)

    now_x, now_y = x(min(elapsed, Fraction(count))), y(standing.spent)
    steps = [(0, HEIGHT), *((x(number), y(row.total)) for number, row in enumerate(rows, start=1)), (now_x, now_y)]
    middle = band = ""
    if standing.forecast_p50 is not None:
        middle = _points([(now_x, now_y), (WIDTH, y(standing.forecast_p50))])
    if standing.forecast_p10 is not None and standing.forecast_p90 is not None:
        band = _points([(now_x, now_y), (WIDTH, y(standing.forecast_p90)), (WIDTH, y(standing.forecast_p10))])
    return Chart(rows, _points(steps), middle, band, y(standing.amount), now_x, now_y)


def _rows(days: Sequence[tuple[date, Decimal]], first: date, passed: int) -> list[DayRow]:
    known = dict(days)
    rows: list[DayRow] = []
    total = Decimal(0)
    for number in range(passed):
        day = first + timedelta(days=number)
        amount = known.get(day, Decimal(0))
        total += amount
        rows.append(DayRow(day, amount, total))
    return rows


def _points(points: Sequence[tuple[int, int]]) -> str:
    return " ".join(f"{x},{y}" for x, y in points)
