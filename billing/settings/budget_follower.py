"""The process that follows the database for the budget check: `python -m billing.settings.budget_follower FD`."""

import os
import sys
from multiprocessing.connection import Connection
from typing import Final

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")

STANDS_BACK: Final = 5
"""Niceness: where cores are few, whoever answers a gateway comes before whoever makes the next answers newer."""


def main() -> None:
    """Serve the connection whose file descriptor is the only argument."""
    os.nice(STANDS_BACK)
    django.setup()
    from billing.budgets.follower import Follower

    Follower(Connection(int(sys.argv[1]))).run()


if __name__ == "__main__":
    main()
