"""Linux calls that Python does not offer: the signal on a parent's death, capabilities, and the processes of a session."""

import contextlib
import ctypes
import os
import signal
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_KEEPCAPS = 8
_PR_SET_SECUREBITS = 28
_PR_SET_CHILD_SUBREAPER = 36
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE = 47, 2
_SECBIT_NO_SETUID_FIXUP = 1 << 2
_CAPABILITY_VERSION_3 = 0x20080522
CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH, CAP_SETGID, CAP_SETUID, CAP_SETPCAP = 0, 1, 2, 6, 7, 8

_KILLED_SECONDS = 5.0  # a process that survives this hangs in the kernel
ON_LINUX = sys.platform == "linux"
_libc = ctypes.CDLL(None, use_errno=True)


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilitySets(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def die_with_parent(parent: int, by: signal.Signals) -> None:
    """Ask the kernel to send `by` to this process when its parent dies; exit now if the parent has died already.

    The kernel drops the request on a change of user, so it comes after setuid. The request is about the parent's thread
    that forked: start children from a thread that lives as long as the process.
    """
    if ON_LINUX:
        _prctl(_PR_SET_PDEATHSIG, by)
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> None:
    """Make descendants whose parent died children of this process instead of init's, so that it can end them."""
    if ON_LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def permitted_capabilities() -> int:
    """Return the bit mask of the capabilities that this process may use; 0 outside Linux."""
    if not ON_LINUX:
        return 0
    sets = (_CapabilitySets * 2)()
    _checked(_libc.capget(ctypes.byref(_CapabilityHeader(_CAPABILITY_VERSION_3, 0)), sets))
    return int(sets[0].permitted)


def become(uid: int, gid: int, *, keep: int | None = None) -> None:
    """Turn this process into uid and gid, for ever; `keep` is one capability that survives, through exec as well.

    Ambient alone would not do: access(2) judges a non-root real uid without capabilities unless
    SECBIT_NO_SETUID_FIXUP is set, and PostgreSQL asks access(2) whether it may run its own binaries. If that bit
    may not be set (no CAP_SETPCAP) the rest still works.
    """
    if keep is not None:
        if permitted_capabilities() & (1 << CAP_SETPCAP):
            _prctl(_PR_SET_SECUREBITS, _SECBIT_NO_SETUID_FIXUP)
        _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([gid])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if keep is not None:
        sets = (_CapabilitySets * 2)()
        sets[0] = _CapabilitySets(1 << keep, 1 << keep, 1 << keep)
        _checked(_libc.capset(ctypes.byref(_CapabilityHeader(_CAPABILITY_VERSION_3, 0)), sets))
        _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, keep)


def _prctl(option: int, *arguments: int) -> None:
    padded = [ctypes.c_ulong(value) for value in (*arguments, 0, 0, 0, 0)[:4]]
    _checked(_libc.prctl(ctypes.c_int(option), *padded))


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def session_members(session: int) -> list[int]:
    """Return the pids of the living processes of a session, whatever their parent is; its leader is not among them."""
    found = []
    for entry in os.listdir("/proc") if ON_LINUX else ():
        if not entry.isdigit() or int(entry) == session:
            continue
        try:
            with open(f"/proc/{entry}/stat") as file:
                # after the last parenthesis: the name of a program may have blanks and parentheses of its own
                state, _parent, _group, its_session = file.read().rpartition(")")[2].split()[:4]
        except OSError:
            continue  # the process ended meanwhile
        if int(its_session) == session and state not in "ZX":
            found.append(int(entry))
    return found


def session_kill(session: int) -> None:
    """Kill the processes of a session, its leader excepted, and those that they start meanwhile."""
    deadline = time.monotonic() + _KILLED_SECONDS
    while (members := session_members(session)) and time.monotonic() < deadline:
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
