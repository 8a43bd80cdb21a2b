"""Pause of the cyclic garbage collector during bulk allocation of long-lived values: data of a month, imported modules."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Disable the collector in the block; leave it disabled if it was before.

    Hundreds of thousands of values that live until a month is billed have no cycles, but would be searched again and again,
    a quarter of the time that rating, or importing all modules, takes.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
