"""Debian's nginx with the configuration that is shipped; only the two addresses in it are those of the test."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from billing.local.process_list import free_port
from billing.runtime.home import PROJECT
from tests.factories.servers import until
from tests.operations.peers import home_of, program, running_as

SHIPPED = PROJECT / "docker" / "nginx" / "suanpan.conf"
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")


@contextmanager
def nginx(web_port: int, **other: str) -> Iterator[str]:
    """Its address, before the web process at `web_port`. `other`: what else is replaced in the file that is shipped."""
    port = free_port()
    changed = {"listen 80;": f"listen 127.0.0.1:{port};", "server 127.0.0.1:8000;": f"server 127.0.0.1:{web_port};", **other}
    shipped = SHIPPED.read_text(encoding="utf-8")
    for before, after in changed.items():
        assert before in shipped, before
        shipped = shipped.replace(before, after)
    with home_of("nobody") as home:
        (home / "suanpan.conf").write_text(shipped, encoding="utf-8")
        (home / "nginx.conf").write_text(main_configuration(home), encoding="utf-8")
        process = subprocess.Popen(
            [program("nginx"), "-p", str(home), "-e", str(home / "error.log"), "-c", str(home / "nginx.conf")],
            **running_as("nobody"),
        )
        try:
            until(lambda: _answers(port), 30)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


def main_configuration(home: Path) -> str:
    """What Debian's /etc/nginx/nginx.conf is to a configuration in conf.d."""
    paths = "".join(f"{name}_temp_path {home}/{name};" for name in TEMPORARY)
    return (
        f"daemon off; worker_processes 1; pid {home}/nginx.pid; events {{ worker_connections 4096; }}\n"
        f"http {{ access_log off; {paths} include {home}/suanpan.conf; }}\n"
    )


def _answers(port: int) -> bool:
    try:
        httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=5)
    except httpx.TransportError:
        return False
    return True
