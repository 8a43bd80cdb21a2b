"""`python -m tests.benchmarks.warm_close 2026-10`: closes and issues a month when it is asked to, as a worker does.

A worker has imported everything, opened its connection and assessed the open month for its page long before somebody presses
the button; what it is given is an operation. Nothing that it found then is used again. "ready" on standard output says that
it is as far, a line on standard input that it may begin; then it prints its seconds and the highest resident MB that it
ever had.
"""

import gc
import json
import sys
import time
from pathlib import Path

import django

from metering.intervals import billing_month
from tests.benchmarks.month import ZONE


def main(month: str) -> None:
    """Get ready, wait, close and issue the month, and say what it took."""
    django.setup()
    from django.db import connection

    from billing.closing.services.operations import operation_request, operation_run
    from billing.rating.assessment import rate_period

    rate_period(window=billing_month(month, ZONE), zone=ZONE, close_seq=None)
    gc.collect()
    connection.close()
    connection.ensure_connection()
    print("ready", flush=True)
    sys.stdin.readline()
    started, used = time.perf_counter(), time.process_time()
    for kind in ("close", "issue"):
        operation = operation_run(operation_id=operation_request(kind=kind, month=month, actor="bench").pk)
        assert operation.status == "done", operation.message
    seconds, processor = time.perf_counter() - started, time.process_time() - used
    print(json.dumps({"seconds": seconds, "processor": processor, "megabytes": _highest()}), flush=True)


def _highest() -> int:
    """Of this program: it was not forked from one that held more, but executed."""
    facts = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return int(facts["VmHWM"].split()[0]) // 1024


if __name__ == "__main__":
    main(sys.argv[1])
