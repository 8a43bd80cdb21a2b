"""Ports on loopback: the same one at every start of a home, another one if another program has taken it."""

import random
import socket

from billing.local.embedded.layout import Layout, read_json, write_json

LOOPBACK = "127.0.0.1"
_BELOW_EPHEMERAL = range(20_000, 32_000)
"""Range below the ephemeral ports (from 32768 up): an outgoing connection could take such a port between two starts."""


def port_for(layout: Layout, name: str, *, another: bool = False) -> int:
    """Return the port of a server, as remembered in the home.

    another: the remembered one has just proved to be taken.
    """
    ports = {server: port for server, port in (read_json(layout.ports) or {}).items() if isinstance(port, int)}
    if another or not is_free(ports.get(name)):
        ports[name] = _free_port(set(ports.values()))
        write_json(layout.ports, ports)
    return int(ports[name])


def _free_port(avoid: set[int]) -> int:
    for port in random.sample(_BELOW_EPHEMERAL, 200):
        if port not in avoid and is_free(port):
            return port
    with socket.create_server((LOOPBACK, 0)) as server:
        return int(server.getsockname()[1])


def is_free(port: int | None) -> bool:
    """Return True if no program listens on the port; None is not free."""
    if port is None or not 0 < port < 65_536:
        return False
    try:
        with socket.create_server((LOOPBACK, port)):
            return True
    except OSError:
        return False
