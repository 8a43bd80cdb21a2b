"""Frame of every `manage.py` command: services, schema, exit status, errors without traceback."""

import contextlib
import gc
import os
import select
import sys
from collections.abc import Iterator

from django.core.exceptions import ImproperlyConfigured

from billing.local.embedded import Services, attach
from billing.runtime.gc_pause import collector_paused
from billing.runtime.home import HomeError

WITHOUT_SERVICES = {"help", "version", "--help", "-h", "--version", "collectstatic", "compilemessages", "capacity"}
"""Commands that never use a service; every other command finds its database and broker ready."""

OWN_SCHEMA = {"migrate", "makemigrations", "up", "demo", "check", "flush", "dbshell", "backup", "restore_check"}
"""Commands that bring or do not need the schema, or must see it before an upgrade changes it (`backup`); before any other,
an embedded database is brought up to date."""

NOBODY_READS = 141
"""Exit status that a shell reports of a program whose reader went away, as `head` does once it has its lines."""


def main(argv: list[str]) -> int:
    """Run one command and return its exit status: 0 done, 2 bad usage or input, 3 a person must decide, NOBODY_READS."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  None where the caller has closed it
    try:
        status = _run(argv)
        sys.stdout.flush()
    except BrokenPipeError:
        if not _output_is_gone():
            raise
        return NOBODY_READS
    return status


def _output_is_gone() -> bool:
    """Return True if the reader of stdout has gone; stdout then goes to /dev/null, so that the exit reports no error."""
    output = select.poll()
    output.register(sys.stdout.fileno(), select.POLLOUT)
    gone = any(event & (select.POLLERR | select.POLLHUP) for _, event in output.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return gone


def _run(argv: list[str]) -> int:
    command = argv[1] if len(argv) > 1 else "help"
    try:
        if command in WITHOUT_SERVICES or "--help" in argv or "-h" in argv:
            return _execute(argv)
        with embedded_services() as services:
            if services is not None:
                services.keep_up()
            if services is None or not services.has_database:
                return _execute(argv)
            _set_up()
            from billing.local.schema import schema_bring, schema_lock

            if command not in OWN_SCHEMA:
                schema_bring()
            with schema_lock() if command == "migrate" else contextlib.nullcontext():
                return _execute(argv)
    except (HomeError, ImproperlyConfigured) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        return 130


@contextlib.contextmanager
def embedded_services() -> Iterator[Services | None]:
    """Attach services for the ones that the environment does not configure; their URLs are set in the environment."""
    need = tuple(
        name for name, key in (("postgres", "DATABASE_URL"), ("broker", "BROKER_URL")) if not os.environ.get(key)
    )
    if not need:
        yield None
        return
    with attach(need=need) as services:
        if "postgres" in need:
            os.environ["DATABASE_URL"] = services.database_url
            os.environ["DATABASE_OWNER_URL"] = services.database_owner_url
        if "broker" in need:
            os.environ["BROKER_URL"] = services.broker_url
        yield services


def _set_up() -> None:
    """Load the applications. Their objects live as long as the process, so the garbage collector never scans them again."""
    import django

    with collector_paused():
        django.setup()
    gc.freeze()


def _execute(argv: list[str]) -> int:
    from django.core.management import ManagementUtility, get_commands

    _set_up()  # before it, Django knows only its own commands
    if len(argv) > 1 and not argv[1].startswith("-") and argv[1] not in {*get_commands(), "help", "version"}:
        print(f"error: no command {argv[1]!r}; `manage.py help` lists them", file=sys.stderr)  # noqa: T201
        return 2
    try:
        ManagementUtility(argv).execute()
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    return 0
