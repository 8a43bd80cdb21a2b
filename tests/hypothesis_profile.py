"""How Hypothesis makes up examples: the same ones for everybody in `make test`, fresh ones in `make explore`.

A slow example says nothing about the code on a busy machine, so there is no deadline.
"""

import os

from hypothesis import HealthCheck, settings

EXPLORES = bool(os.environ.get("SUANPAN_EXPLORE"))
"""Fresh seeds instead of the ones that follow from a test's own code."""

settings.register_profile(
    "suanpan", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True, derandomize=not EXPLORES
)
settings.load_profile("suanpan")
