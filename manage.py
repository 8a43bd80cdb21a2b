#!/usr/bin/env python
"""Command line of Suanpan. With nothing configured it attaches to the embedded services of `SUANPAN_HOME`."""

import os
import sys

from billing.local.command_line import main

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "billing.settings.base")
    sys.exit(main(sys.argv))
