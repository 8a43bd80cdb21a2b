"""Account of a server. PostgreSQL refuses root, so root runs it under a lesser account."""

import contextlib
import os
import pwd
import signal
import stat
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from billing.local import linux
from billing.local.embedded.errors import EmbeddedError

_LESSER_ACCOUNTS = ("postgres", "nobody")
_TO_READ = (linux.CAP_DAC_READ_SEARCH, linux.CAP_DAC_OVERRIDE)
_TO_EXECUTE = (linux.CAP_DAC_OVERRIDE,)
_TO_CHANGE = (linux.CAP_CHOWN, linux.CAP_SETGID, linux.CAP_SETUID)


@dataclass(frozen=True)
class Account:
    """Account that a server runs under. `keep`: the capability it needs to pass directories that are closed to it."""

    uid: int
    gid: int
    name: str
    change: bool
    keep: int | None = None

    def give(self, path: Path) -> None:
        """Give a file or directory to the account; needed only if the server runs under another one."""
        if self.change:
            os.chown(path, self.uid, self.gid)

    def launch(
        self, argv: Sequence[str], *, log: Path, on_parent_death: signal.Signals, lock: int, text: str = ""
    ) -> subprocess.Popen[bytes]:
        """Start a program that writes to `log` and holds `lock` as long as it or a descendant lives.

        text: what it reads on stdin, less than the buffer of a pipe.
        """
        parent = os.getpid()

        def prepare() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, [])  # the keeper blocks those that it waits for
            os.umask(0o077)
            if self.change:
                linux.become(self.uid, self.gid, keep=self.keep)
            # after the change of user, which would drop the request
            linux.die_with_parent(parent, on_parent_death)

        read, write = os.pipe()
        os.write(write, text.encode())
        os.close(write)
        try:
            with log.open("ab") as output:
                return subprocess.Popen(  # noqa: S603 -- a program found by us
                    argv,
                    stdin=read,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd="/",
                    env=_environment(),
                    pass_fds=(lock,),
                    start_new_session=True,
                    preexec_fn=prepare,
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise EmbeddedError(f"cannot run {argv[0]} as {self.name}: {error}") from error
        finally:
            os.close(read)


def server_account(data: Path, programs: Sequence[Path]) -> Account:
    """Return the account for the servers of a home: ours, or for root a lesser one that can reach data and programs.

    An existing data directory keeps its owner. A capability is kept only if a closed directory (/root) or a
    program closed to others (installed under umask 077) is in the way: no mode of another's file is changed.
    Raises EmbeddedError naming the obstacle if no capability is available.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid(), f"uid {os.geteuid()}", change=False)
    account = _lesser_account(data)
    permitted = linux.permitted_capabilities()
    if linux.ON_LINUX and not all(permitted & (1 << capability) for capability in _TO_CHANGE):
        raise EmbeddedError(
            f"PostgreSQL must not run as root, and this root may not change to the account {account.name}: give the "
            "container CAP_CHOWN, CAP_SETGID and CAP_SETUID, or run as an ordinary user"
        )
    closed = [program for program in programs if not _may_pass(program.stat(), account)]
    obstacles = closed + [found for path in (data, *programs) if (found := _closed_parent(path, account))]
    if not obstacles:
        return account
    for capability in _TO_EXECUTE if closed else _TO_READ:
        if permitted & (1 << capability):
            return replace(account, keep=capability)
    raise EmbeddedError(
        f"PostgreSQL must not run as root, and the account {account.name} it would run as cannot pass {obstacles[0]}. "
        "Use a directory that others may pass, such as one below /srv (SUANPAN_HOME, and the installation), or run as "
        "an ordinary user"
    )


def _lesser_account(data: Path) -> Account:
    """Return the owner of existing data, or the account for new ones."""
    owner = data.stat().st_uid if data.is_dir() else 0
    for wanted in (owner,) if owner else _LESSER_ACCOUNTS:
        with contextlib.suppress(KeyError):
            entry = pwd.getpwuid(wanted) if isinstance(wanted, int) else pwd.getpwnam(wanted)
            return Account(entry.pw_uid, entry.pw_gid, entry.pw_name, change=True)
    if owner:
        raise EmbeddedError(
            f"{data} belongs to uid {owner}, which has no entry in /etc/passwd; give it to an account that has one"
        )
    raise EmbeddedError(
        f"PostgreSQL must not run as root and this system has none of the accounts {', '.join(_LESSER_ACCOUNTS)}; "
        "add one of them or run as an ordinary user"
    )


def _closed_parent(path: Path, account: Account) -> Path | None:
    """Return the topmost directory above `path` that the account may not pass."""
    for directory in reversed(path.resolve().parents):
        if directory.is_dir() and not _may_pass(directory.stat(), account):
            return directory
    return None


def _may_pass(status: os.stat_result, account: Account) -> bool:
    """Return True if the account has the execute permission of a directory or program."""
    if status.st_uid == account.uid:
        return bool(status.st_mode & stat.S_IXUSR)
    if status.st_gid == account.gid:
        return bool(status.st_mode & stat.S_IXGRP)
    return bool(status.st_mode & stat.S_IXOTH)


def _environment() -> dict[str, str]:
    """Return the environment without PGDATA, PGPORT, locale and so on: a server depends on its home alone."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR")}
    return {**kept, "LC_ALL": "C", "TZ": "UTC", "HOME": "/"}
