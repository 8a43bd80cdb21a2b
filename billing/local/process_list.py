"""Processes of an installation on one machine, as children of one foreground command."""

import fcntl
import json
import os
import secrets
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from django.contrib.auth.models import User

from billing.local.embedded.layout import acquire, open_lock
from billing.local.embedded.servers import is_free
from billing.local.supervisor import Child
from billing.runtime.atomic_file import atomic_file
from billing.runtime.home import PROJECT, HomeError, explain, home_dir, make_home
from billing.tenancy.models import Membership, Team
from billing.tenancy.people import first_password_note, somebody_manages_people

BIN = Path(sys.executable).parent


class PortTakenError(RuntimeError):
    """Port of the portal that another program listens on."""


class ServedError(RuntimeError):
    """Home that another `up` or `demo` serves."""


def check_port(port: int) -> None:
    """Raise PortTakenError if `port` is in use on loopback."""
    if not is_free(port):
        raise PortTakenError(f"port {port} on 127.0.0.1 is in use: choose another with --port")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def children(port: int) -> list[Child]:
    """Return web on `port`, the counter of budgets, the worker with two processes, and the scheduler."""
    run, static = home_dir() / "run", home_dir() / "static"
    for directory in (run, static):
        directory.mkdir(parents=True, exist_ok=True)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "DATABASE_OWNER_URL"},  # no part migrates
        "DJANGO_SETTINGS_MODULE": "billing.settings.base",
        "STATIC_ROOT": str(static),
        "MALLOC_ARENA_MAX": "2",  # else every thread keeps the memory of its largest request body
        # a private installation may well run as root
        "PYTHONWARNINGS": "ignore:You're running the worker with superuser privileges",
    }
    celery = [str(BIN / "celery"), "--quiet", "-A", "billing.settings.celery"]
    return [
        Child("web", server_argv(port), environment, partial(_is_ready, port)),
        Child(
            name="counter",
            argv=[sys.executable, str(PROJECT / "manage.py"), "budget_counter", "--follow"],
            env=environment,
        ),
        Child(name="worker", argv=[*celery, "worker", "--concurrency", "2", "--loglevel", "warning"], env=environment),
        Child(
            name="scheduler",
            argv=[*celery, "beat", "--schedule", str(run / "beat"), "--pidfile=", "--loglevel", "warning"],
            env=environment,
        ),
    ]  # fmt: skip


def _passwords(path: Path) -> dict[str, str]:
    """Return the first passwords of this home's accounts, by name.  Raises HomeError for a damaged file."""
    try:
        known = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise HomeError(explain(error, path)) from error
    except ValueError:
        known = None
    if not isinstance(known, dict) or not all(isinstance(password, str) for password in known.values()):
        raise HomeError(f"{path} is damaged: delete it, and the accounts of this command get new passwords")
    return known


@contextmanager
def serving_alone(port: int) -> Iterator[None]:
    """Lock this home against another `up` or `demo` meanwhile; the kernel drops the lock however this process ends.

    Raises ServedError if another process holds the lock, PortTakenError if `port` is in use on loopback.
    """
    run = make_home(home_dir()) / "run"
    run.mkdir(mode=0o700, exist_ok=True)
    lock = open_lock(run / "serving.lock")
    try:
        if not acquire(lock, fcntl.LOCK_EX, 0):
            other = os.read(lock, 100).decode() or "another process"
            raise ServedError(f"this home is served already, by {other}: stop that first, or set SUANPAN_HOME to another")
        check_port(port)
        os.ftruncate(lock, 0)
        os.write(lock, f"process {os.getpid()} on port {port}".encode())
        yield
    finally:
        os.close(lock)


def server_argv(port: int) -> list[str]:
    return [sys.executable, "-m", "billing.settings.serve", "--port", str(port)]


def _is_ready(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def demonstration_accounts() -> tuple[tuple[str, str], tuple[str, str]]:
    """Create `finance`, a superuser only if there is no manager of people, and `controller`, who approves.

    Return the name and first password of each.
    """
    managed = somebody_manages_people()
    joins = managed and not User.objects.filter(username="finance").exists()
    roles = (Membership.Role.FINANCE, Membership.Role.ADMIN) if joins else ()
    finance = account_put(username="finance", staff=not managed, roles=roles)
    return finance, account_put(username="controller", staff=False, roles=(Membership.Role.APPROVER,))


def account_put(
    *, username: str, staff: bool, team: str | None = None, roles: tuple[str, ...] = ()
) -> tuple[str, str]:
    """Create an account once per home with a random first password; return both, an empty one once its owner chose another.

    The first password is stored in the home, 0600. `staff`: a superuser; `roles`: for all teams; `team`: the one it leads.
    """
    path = home_dir() / "accounts.json"
    known = _passwords(path)
    if username not in known or not User.objects.filter(username=username).exists():
        known[username] = known.get(username) or secrets.token_urlsafe(9)
        user, _ = User.objects.get_or_create(username=username, defaults={"is_staff": staff, "is_superuser": staff})
        user.set_password(known[username])
        user.save()
        first_password_note(user)
        with atomic_file(path, mode=0o600) as draft:
            draft.write_text(json.dumps(known, indent=1))
    user = User.objects.get(username=username)
    if team is not None:
        Membership.objects.get_or_create(
            user=user, team=Team.objects.get(code=team), defaults={"role": Membership.Role.LEAD}
        )
    for role in roles:
        Membership.objects.get_or_create(user=user, team=None, role=role)
    return username, known[username] if user.check_password(known[username]) else ""
