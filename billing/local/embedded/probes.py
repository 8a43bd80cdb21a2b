"""Probes of servers over the wire, as a client would: a pid proves nothing (a killed server stays a zombie)."""

import socket
import struct

from billing.local.embedded.ports import LOOPBACK

_PROTOCOL_3 = 196_608
_TIMEOUT_SECONDS = 2.0


def postgres_answers(port: int) -> bool:
    """Return True if a PostgreSQL accepts sessions on this port; as pg_isready, start a session without a login.

    A server that starts, recovers or shuts down answers with an error instead of asking for the password.
    """
    parameters = b"user\0suanpan\0database\0suanpan\0\0"
    greeting = struct.pack("!ii", len(parameters) + 8, _PROTOCOL_3) + parameters
    return _ask(port, greeting)[:1] == b"R"


def valkey_answers(port: int, password: str) -> bool:
    """Return True if the broker on this port accepts our password and serves."""
    return b"+PONG" in _ask(port, f"AUTH {password}\r\nPING\r\nQUIT\r\n".encode(), until_closed=True)


def _ask(port: int, question: bytes, *, until_closed: bool = False) -> bytes:
    answer = b""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=_TIMEOUT_SECONDS) as connection:
            connection.settimeout(_TIMEOUT_SECONDS)
            connection.sendall(question)
            while part := connection.recv(512):
                answer += part
                if not until_closed:
                    break
    except OSError:
        return answer
    return answer
