"""Programs of Debian that stand in for a production set-up; `.ci/run` installs them."""

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

PACKAGES = {"pgbouncer": "pgbouncer", "pgbackrest": "pgbackrest", "nginx": "nginx", "kubectl": "kubernetes-client"}
"""Program -> Debian package."""


def program(name: str) -> str:
    """Its path; the test fails with the package to install where there is none."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/usr/lib/postgresql/15/bin")
    if found is None:
        pytest.fail(f"no {name} on this machine: apt-get install {PACKAGES.get(name, 'postgresql-15')}")
    return found


def running_as(account: str) -> dict[str, Any]:
    """For Popen: these programs refuse root, so root starts them as somebody else."""
    if os.geteuid() != 0:
        return {}
    entry = pwd.getpwnam(account)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@contextmanager
def home_of(account: str) -> Iterator[Path]:
    """A directory that these programs may read and write, also where root starts them; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory(prefix="suanpan-peer-") as home:
        if os.geteuid() == 0:
            entry = pwd.getpwnam(account)
            os.chown(home, entry.pw_uid, entry.pw_gid)
        yield Path(home)
