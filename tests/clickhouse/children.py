"""`python -m tests.clickhouse.children report SEED MONTHS SINCE`, or `close MONTHS`: what is killed, and says how far it is.

A child does the work; another one follows when it was killed. Each says its number first, and then, a line of JSON each, the
steps that it comes to. `report` reports records, with the seconds others, each over and over, as a gateway that repeats, and
says of each acknowledged report the numbers of its records but those with other content. `close` closes one month after
another, each when it has read its number.
"""

import json
import os
import random
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from typing import Any, Final

import django

from metering.intervals import Interval, billing_month

A_SECOND, AT_ONCE, OF = 40, 60, 600
"""New records, those of a report, and those that it is drawn from."""
ZONE: Final = "Asia/Shanghai"
REPORT_STEPS: Final = ("look up", "lock", "note the batch", "insert", "inserted", "commit", "committed")
CLOSE_STEPS: Final = ("rate", "cut off", "ingest waits", "close number", "commit", "committed", "write", "draft")


def month_at(place: int) -> str:
    """The months that are closed, one after the other."""
    return f"{2023 + place // 12}-{1 + place % 12:02}"


@cache
def window_at(place: int) -> Interval:
    """When it begins and ends."""
    return billing_month(month_at(place), ZONE)


def record(number: int, months: int, *, other: bool = False) -> dict[str, Any]:
    """One of the pool; `other` is another content under its id."""
    month = window_at(number % months)
    at = month.start + (month.end - month.start) * (number // months * 7919 % 40_009) / 40_009
    return {
        "id": f"req-{number}", "source": "gw", "time": at.isoformat(), "consumer": f"key-{number % 3}",
        "model": "llama-3-8b", "input_tokens": 1000 + number, "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0, "output_tokens": 100 + other, "reasoning_output_tokens": 0,
    }  # fmt: skip


def say(what: Any) -> None:
    """In one line, which also threads may write at once."""
    os.write(1, json.dumps(what).encode() + b"\n")


def _says_before(owner: Any, name: str, step: str, after: str = "") -> None:
    real = getattr(owner, name)

    def told(*given: Any, **named: Any) -> Any:
        say(step)
        found = real(*given, **named)
        if after:
            say(after)
        return found

    setattr(owner, name, told)


def _report(seed: int, months: int, since: int) -> None:
    from tests.factories import ingest_tokens

    chance, known = random.Random(seed), set[int]()
    while True:
        first = int(A_SECOND * (time.time() - since))
        numbers = chance.sample(range(first, first + OF), AT_ONCE)
        conflicts = {number for number in numbers if number in known and chance.random() < 0.002}
        _until_done(lambda: ingest_tokens(*(record(number, months, other=number in conflicts) for number in numbers)))  # noqa: B023
        known.update(numbers)
        say(sorted(set(numbers) - conflicts))


def _until_done(work: Callable[[], Any]) -> None:
    """Again whenever a server is away, which a sender and an operator are told to do."""
    from django.db import InterfaceError, OperationalError, connection

    while True:
        try:
            work()
            return
        except (InterfaceError, OperationalError):
            connection.close_if_unusable_or_obsolete()
            time.sleep(0.05)


def _close(months: int) -> None:
    from billing.invoices.models import BillingPeriod

    for place in range(months):
        _until_done(lambda: _closed(place, BillingPeriod))  # noqa: B023


def _closed(place: int, period: Any) -> None:
    month = month_at(place)
    if not period.objects.filter(month=month, status="closed").exists():
        say({"ready": place})
        while int(_line()) != place:
            pass
        close_now(place, say)
    say({"closed": place})


def _line() -> bytes:
    """Octet by octet, so that the next child finds what this one did not read."""
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(0, 1)
    return line


def close_now(place: int, say: Callable[[str], None] = lambda step: None) -> None:
    """Close this month, and dismiss whatever conflicts were reported."""
    from billing.closing.services.closing import CloseRefusedError, period_close
    from billing.usage.models import QuarantinedRecord
    from billing.usage.services import quarantine_dismiss

    while True:
        for refused in QuarantinedRecord.objects.filter(status="open"):
            quarantine_dismiss(record_id=refused.pk, actor="ops", resolution="the first one is right")
        try:
            period_close(
                month=month_at(place), actor="ops", now=window_at(place).end + timedelta(minutes=5),
                report_progress=lambda stage, done, of: say(stage.replace("_", " ")),
            )  # fmt: skip
            return
        except CloseRefusedError as error:
            if {item.kind for item in error.report.blocking} != {"conflict"}:
                raise


def main(kind: str, numbers: list[int]) -> None:
    """Child after child."""
    from django.db.backends.base.base import BaseDatabaseWrapper

    import tests.factories  # noqa: F401  # once for all of them
    from billing.closing.services import closing
    from billing.usage.services import tokens
    from billing.usage.store import sharded
    from billing.usage.store.clickhouse import Servers

    _says_before(BaseDatabaseWrapper, "_commit", "commit", "committed")
    if kind == "report":
        _says_before(Servers, "rows", "look up")
        _says_before(tokens, "rows_copy", "lock")
        _says_before(sharded, "_beside_run", "note the batch")
        _says_before(Servers, "insert", "insert", "inserted")
    else:
        _says_before(closing, "ingest_lock_exclusive", "ingest waits")
        _says_before(closing, "epoch_advance", "close number")
    while True:
        numbers[0] += 1 if kind == "report" else 0
        child = os.fork()
        if not child:
            say({"child": os.getpid()})
            (_report if kind == "report" else _close)(*numbers)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return


if __name__ == "__main__":
    django.setup()
    main(sys.argv[1], list(map(int, sys.argv[2:])))
