"""Pausing the collector of cyclic garbage while much is made that stays: the values of a month, the modules of a process."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Hundreds of thousands of values that live until a month is billed hold no cycles, and yet would be searched for some
    again and again, a quarter of the time that rating takes, or loading all modules. Where it is paused or off already it
    stays so.
    """
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()
