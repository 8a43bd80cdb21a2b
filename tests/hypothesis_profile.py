"""How Hypothesis makes up examples: the same ones for everybody in `make test`, fresh ones in `make explore`.

A test that costs seconds per example asks `examples` for a number of them. `make explore` tries all, `make test` two
fifths, and `make check`, which asks for the profile `check`, a tenth, while somebody waits. A slow example says nothing
about the code on a busy machine, so there is no deadline.
"""

import os

from hypothesis import HealthCheck, settings

EXPLORES = bool(os.environ.get("SUANPAN_EXPLORE"))
"""Fresh seeds instead of the ones that follow from a test's own code."""
ALL, A_TENTH = "suanpan", "check"


def examples(number: int) -> int:
    """How many of `number` examples a test tries in this run; at least one."""
    if settings.get_current_profile_name() == A_TENTH:
        return max(1, number // 10)
    return number if EXPLORES else max(1, number * 2 // 5)


settings.register_profile(
    ALL, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=not EXPLORES
)
settings.register_profile(A_TENTH, settings.get_profile(ALL), max_examples=settings.get_profile(ALL).max_examples // 10)
settings.load_profile(ALL)
