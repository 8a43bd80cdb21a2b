"""The images are built as they are shipped, and every part runs from them against PostgreSQL 15 and a broker."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

import metering
from billing.local.embedded.binaries import valkey_server
from billing.local.process_list import free_port
from metering.__main__ import COMMANDS
from tests.factories import token_record
from tests.factories.servers import until
from tests.images.buildah import Buildah, buildah
from tests.operations.postgres import Server, installed, new_server

PLATFORM, AGENT, BACKUP = "suanpan", "suanpan-agent", "suanpan-backup"
pytestmark = pytest.mark.timeout(1500)
LEFT_OUT = " -o ".join(f"-path {path}" for path in ("/proc", "/sys", "/dev", "/tmp", "/var/tmp", "/run"))
WRITABLE = rf"find / -xdev \( {LEFT_OUT} \) -prune -o ! -type l -writable -print"
ENTRY = "/app/docker/entrypoint.sh"
TOKEN = """
from billing.tenancy.tokens import api_token_create
print(api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1])
"""


@pytest.fixture(scope="module")
def images() -> Iterator[Buildah]:
    with buildah() as found:
        found.base()
        found.build("docker/agent.Dockerfile", AGENT, "--ignorefile", "docker/agent.Dockerfile.dockerignore")
        found.build("docker/Dockerfile", PLATFORM)
        given = ("--build-arg", f"PLATFORM={PLATFORM}", "--build-arg", "POSTGRES=15")
        found.build("docker/backup.Dockerfile", BACKUP, *given, context="docker")
        yield found


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with new_server(installed()[15]) as found:
        found.command("CREATE DATABASE suanpan")
        yield found


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    port = free_port()
    argv = [str(valkey_server()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/"]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    yield f"redis://127.0.0.1:{port}/0"
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def where(server: Server, broker: str) -> dict[str, str]:
    return {"DATABASE_URL": server.url("suanpan"), "BROKER_URL": broker, "SECRET_KEY": "x" * 50, "WEB_WORKERS": "1"}


@contextmanager
def part(images: Buildah, where: dict[str, str], log: Path, *command: str) -> Iterator[None]:
    """A part of the platform's image, until the block ends."""
    container = images.container(PLATFORM, **where)
    argv = images.run_argv(container, ENTRY, *command)
    with log.open("wb") as output:
        process = subprocess.Popen(argv, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield
            assert process.poll() is None, log.read_text()[-2000:]
        finally:
            process.terminate()
            process.wait(timeout=60)


def answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", timeout=10).status_code == httpx.codes.OK
    return False


def test_each_image_says_what_it_is_and_runs_as_nobody_in_particular(images: Buildah) -> None:
    for name in (PLATFORM, AGENT, BACKUP):
        config = images.image(name)["config"]
        assert isinstance(config, dict)
        version = config["Labels"]["org.opencontainers.image.version"]
        assert (config["User"], version) == ("10001:10001", metering.__version__)
        assert "Healthcheck" not in config


@pytest.mark.parametrize("name", [PLATFORM, AGENT, BACKUP])
def test_the_process_can_change_nothing_but_temporary_files(images: Buildah, name: str) -> None:
    container = images.container(name)
    looked = f"id -u; find /tmp -maxdepth 0 -writable; {WRITABLE} || true"  # it may not look into folders of root
    assert images.run(container, "sh", "-c", looked).splitlines() == ["10001", "/tmp"]


def test_the_agents_image_has_every_command_and_nothing_of_the_platform(images: Buildah) -> None:
    container = images.container(AGENT)
    for command in COMMANDS:
        assert "usage: " in images.run(container, "python", "-m", "metering", command, "--help")
    absent = "import importlib.util as u; print([n for n in ('billing', 'django', 'psycopg', 'pandas') if u.find_spec(n)])"
    assert images.run(container, "python", "-c", absent) == "[]"


def test_every_part_runs_from_the_image_and_takes_a_record_through_broker_and_worker(
    images: Buildah, where: dict[str, str], server: Server, tmp_path: Path
) -> None:
    platform = images.container(PLATFORM, **where)
    images.run(platform, ENTRY, "migrate")
    token = images.run(platform, ENTRY, "manage", "shell", "--verbosity", "0", "--command", TOKEN).splitlines()[-1]
    bearer = {"Authorization": f"Bearer {token}"}
    url = f"http://127.0.0.1:{(port := free_port())}"
    with ExitStack() as stack:
        given = {"web": ("--host", "127.0.0.1", "--port", str(port)), "counter": (), "worker": (), "scheduler": ()}
        for name, options in given.items():
            stack.enter_context(part(images, where, tmp_path / name, name, *options))
        until(lambda: answers(url), 180)
        for number in range(2):
            sent = httpx.post(f"{url}/api/v1/usage/tokens", json=[token_record(number)], headers=bearer, timeout=60)
            assert (sent.status_code, sent.json()["accepted"]) == (200, 1)
        folded = "SELECT (SELECT sum(requests) FROM token_hour)::int, (SELECT count(*) FROM token_hour_delta)::int"
        until(lambda: server.ask(folded, "suanpan") == [(2, 0)])
        assert httpx.get(f"{url}/login/", timeout=30).status_code == httpx.codes.OK


def test_the_backup_image_takes_and_proves_a_backup(images: Buildah, where: dict[str, str]) -> None:
    container = images.container(BACKUP, **where)
    images.run(container, ENTRY, "manage", "backup", "--out", "/tmp/b.dump")
    assert "/tmp/b.dump holds" in images.run(container, ENTRY, "manage", "restore_check", "/tmp/b.dump")
    assert images.run(container, "age", "--version") != ""
