"""Starting a child that cannot outlive its parent, as a user that PostgreSQL accepts.

PostgreSQL refuses to run as root. As root the child becomes an ordinary user; a home or virtual environment below a
directory that this user may not enter (such as /root) stays closed to everybody else: instead of opening directories,
the child keeps the one capability that lets it read and search, CAP_DAC_READ_SEARCH (or CAP_DAC_OVERRIDE where a
container grants only that).
"""

import ctypes
import os
import pwd
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PR_SET_PDEATHSIG, PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 1, 8, 47, 2
CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 1, 2
CAPABILITY_VERSION_3 = 0x20080522
SERVICE_USERS = ("postgres", "nobody")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Identity:
    """The user that a service runs as; None where it stays who we are."""

    uid: int
    gid: int


def service_identity() -> Identity | None:
    """An ordinary user when we are root, else None."""
    if os.geteuid() != 0:
        return None
    for name in SERVICE_USERS:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid:
            return Identity(entry.pw_uid, entry.pw_gid)
    entry = next((entry for entry in pwd.getpwall() if entry.pw_uid), None)
    return Identity(entry.pw_uid, entry.pw_gid) if entry else Identity(65534, 65534)


def spawn(
    argv: Sequence[str | Path], *, log: Path, identity: Identity | None = None, death_signal: int = signal.SIGTERM,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start a child that receives `death_signal` when this process dies, its output appended to `log`."""
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - fixed commands with paths of our own
            [str(part) for part in argv], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            preexec_fn=_before_exec(identity, death_signal), start_new_session=True, env=env, cwd="/",
        )  # fmt: skip


def _before_exec(identity: Identity | None, death_signal: int) -> Callable[[], None]:
    parent = os.getpid()

    def prepare() -> None:
        if identity is not None:
            become(identity)
        # after the change of user, which clears it
        _libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the signal was set
            os._exit(1)

    return prepare


def become(identity: Identity) -> None:
    """Drop from root to `identity`, keeping only the capability to read and search directories."""
    capability = _readable_capability()
    if capability is not None:
        _libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setresgid(identity.gid, identity.gid, identity.gid)
    os.setresuid(identity.uid, identity.uid, identity.uid)
    if capability is not None:
        mask = 1 << capability
        if _set_capabilities(mask):
            _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, capability, 0, 0)


def _readable_capability() -> int | None:
    permitted = _permitted_capabilities()
    for capability in (CAP_DAC_READ_SEARCH, CAP_DAC_OVERRIDE):
        if permitted >> capability & 1:
            return capability
    return None


def _permitted_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapPrm:"):
            return int(line.split()[1], 16)
    return 0


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilityData(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def _set_capabilities(mask: int) -> bool:
    header = _CapabilityHeader(CAPABILITY_VERSION_3, 0)
    data = (_CapabilityData * 2)()
    data[0] = _CapabilityData(mask, mask, mask)
    return bool(_libc.capset(ctypes.byref(header), data) == 0)


def reachable_by(path: Path, identity: Identity) -> bool:
    """Whether `identity` can enter every directory above `path`, by permission bits or by the capability."""
    if _readable_capability() is not None:
        return True
    for parent in path.resolve().parents:
        mode = parent.stat()
        bit = 0o100 if mode.st_uid == identity.uid else 0o010 if mode.st_gid == identity.gid else 0o001
        if not mode.st_mode & bit:
            return False
    return True


def alive(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"
