"""Pytest plugin: Django, and what comes with it, cannot be imported, as where the agent runs."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import tests.hypothesis_profile  # noqa: F401 - a profile that holds wherever examples are made up

ABSENT = frozenset({"django", "rest_framework", "celery", "psycopg", "billing", "pricing"})


class Absent(MetaPathFinder):
    """Refuses the packages of the platform."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {fullname!r}: it is not installed where the agent runs")
        return None


loaded = sorted(name for name in ABSENT if name in sys.modules)
if loaded:
    raise RuntimeError(f"already imported: {loaded}")
sys.meta_path.insert(0, Absent())
