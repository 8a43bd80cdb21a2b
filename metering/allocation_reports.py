"""Reports of allocations that a command found, sent to the platform in bodies of bounded size."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from metering.command_line import SOMEBODY_DECIDES, token_of
from metering.delivery import Delivery
from metering.records import GpuAllocation
from metering.spool import Spool, open_state

ENDPOINT: Final = "usage/gpu-allocations"
RECORDS_PER_BODY: Final = 500
DELIVER_S: Final = 60
T = TypeVar("T")


def report_allocations(
    state: Path,
    records: Sequence[GpuAllocation],
    *,
    endpoint: str,
    token_file: Path,
    agent: Mapping[str, object],
    last: Mapping[str, object],
) -> int:
    """Put `records` into the spool `state` and deliver it in order; return the exit status, 3 if a person must look.

    `last` goes with the last body, such as the watermark up to which the records are complete. Bodies of an earlier run are
    delivered first; while the platform refuses them nothing is added, since the next run finds these records again.
    """
    bodies = in_batches(records, RECORDS_PER_BODY) or [()]
    with (
        closing(open_state(state)) as connection,
        Delivery(spool := Spool(connection), endpoint=endpoint, token=token_of(token_file)) as delivery,
    ):
        delivered = delivery.flush(seconds=DELIVER_S)
        if delivered:
            with connection:
                for number, batch in enumerate(bodies, start=1):
                    more = last if number == len(bodies) else {}
                    spool.put(ENDPOINT, msgspec.json.encode({"agent": agent, "allocations": batch, **more}))
            delivered = delivery.flush(seconds=DELIVER_S)
        if not delivered:
            sys.stderr.write(f"{delivery.last_error}; {len(spool)} bodies wait in {state}: run again\n")
        return 0 if delivered and not delivery.rejected_records else SOMEBODY_DECIDES


def in_batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Split items into batches of at most `size`, in order."""
    return [items[first : first + size] for first in range(0, len(items), size)]
