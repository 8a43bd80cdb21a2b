"""OpenMetrics text from series, as `promtool tsdb create-blocks-from openmetrics` reads it."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

Sample = tuple[datetime, object]


def every(start: datetime, end: datetime, seconds: int, value: object | Callable[[datetime], object]) -> Iterator[Sample]:
    """A sample each so many seconds of [start, end); a value of None is a scrape that failed."""
    for number in range(int((end - start) / timedelta(seconds=seconds))):
        at = start + timedelta(seconds=seconds * number)
        reported = value(at) if callable(value) else value
        if reported is not None:
            yield at, reported


class OpenMetrics:
    """A file of series; those of one metric stand together, as the format wants it."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def add(self, name: str, labels: dict[str, str], samples: Iterable[Sample]) -> None:
        written = ",".join(f'{key}="{value}"' for key, value in labels.items())
        self._families.setdefault(name, []).extend(
            f"{name}{{{written}}} {value} {Decimal(at.timestamp()).quantize(Decimal('0.001'))}" for at, value in samples
        )

    def write(self, path: Path) -> None:
        lines = [f"# TYPE {name} gauge\n" + "\n".join(samples) for name, samples in self._families.items()]
        path.write_text("\n".join([*lines, "# EOF", ""]), encoding="utf-8")
