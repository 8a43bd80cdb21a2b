"""How Hypothesis makes up examples: the same ones for everybody in `make test`, fresh ones in `make explore`.

`make check` asks for the profile `check`: a tenth of the examples, while somebody waits. A slow example says nothing
about the code on a busy machine, so there is no deadline.
"""

import os

from hypothesis import HealthCheck, settings

EXPLORES = bool(os.environ.get("SUANPAN_EXPLORE"))
"""Fresh seeds instead of the ones that follow from a test's own code."""
ALL, A_TENTH = "suanpan", "check"


def examples(number: int) -> int:
    """How many examples a test gets that asks for `number` of them: all, or a tenth in `make check`."""
    return max(1, number // 10) if settings.get_current_profile_name() == A_TENTH else number


settings.register_profile(
    ALL, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=not EXPLORES
)
settings.register_profile(A_TENTH, settings.get_profile(ALL), max_examples=settings.get_profile(ALL).max_examples // 10)
settings.load_profile(ALL)
