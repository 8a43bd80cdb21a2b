"""`python -m tests.clickhouse.writer SEED`: reports some of the same records again and again, as a gateway that repeats.

A child does the work, and says its number first; another one follows when it was killed. Each acknowledged report is a line:
the numbers of its records but those with other content.
"""

import json
import os
import random
import sys
from typing import Any

import django

POOL, AT_ONCE = 1_500, 60


def record(number: int, *, other: bool = False) -> dict[str, Any]:
    """One of the pool; `other` is another content under its id."""
    return {
        "id": f"req-{number}", "source": "gw", "time": f"2026-10-{1 + number % 28:02}T{number % 24:02}:{number % 60:02}:00Z",
        "consumer": f"key-{number % 3}", "model": "llama-3-8b", "input_tokens": 1000 + number, "cache_read_input_tokens": 0,
        "cache_creation_input_tokens": 0, "output_tokens": 100 + other, "reasoning_output_tokens": 0,
    }  # fmt: skip


def work(seed: int) -> None:
    """Report without end."""
    from django.db import InterfaceError, OperationalError

    from tests.factories import ingest_tokens

    print(json.dumps(os.getpid()), flush=True)
    chance = random.Random(seed)
    while True:
        numbers = chance.sample(range(POOL), AT_ONCE)
        conflicts = {number for number in numbers if chance.random() < 0.02}
        try:
            ingest_tokens(*(record(number, other=number in conflicts) for number in numbers))
        except (InterfaceError, OperationalError):  # what a sender is asked to send again
            continue
        print(json.dumps(sorted(set(numbers) - conflicts)), flush=True)


def main(seed: int) -> None:
    """Child after child."""
    import tests.factories  # noqa: F401  # once for all of them

    while True:
        seed += 1
        child = os.fork()
        if not child:
            work(seed)
        os.waitpid(child, 0)


if __name__ == "__main__":
    django.setup()
    main(int(sys.argv[1]))
