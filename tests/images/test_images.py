"""The images are built as they are shipped, and every part runs from them against PostgreSQL 15, PgBouncer and a broker."""

import json
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
from tests.documented import PRODUCTION, filled, of_page, words
from tests.factories import token_record
from tests.factories.servers import until
from tests.images.buildah import BASE, Buildah, buildah
from tests.operations.pgbouncer import pgbouncer
from tests.operations.postgres import Server, installed, new_server

PLATFORM, AGENT, BACKUP = "suanpan", "suanpan-agent", "suanpan-backup"
pytestmark = pytest.mark.timeout(2400)
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
        ignored = "docker/agent.Dockerfile.dockerignore"  # which Docker finds by its name
        found.build("-f", "docker/agent.Dockerfile", "-t", AGENT, "--ignorefile", ignored, ".")
        found.build("-f", "docker/Dockerfile", "-t", PLATFORM, ".")
        (of_the_page,) = of_page(PRODUCTION, "docker build -f docker/backup.Dockerfile")
        own = {"REGISTRY/suanpan:1.0.0": PLATFORM, "REGISTRY/suanpan-backup:1.0.0": BACKUP, "POSTGRES=18": "POSTGRES=15"}
        found.build(*words(filled(of_the_page, own))[2:])
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
    """Without anything between, as a migration and a backup need it."""
    return {"DATABASE_URL": server.url("suanpan"), "BROKER_URL": broker, "SECRET_KEY": "x" * 50, "WEB_WORKERS": "1"}


@pytest.fixture(scope="module")
def pooled(where: dict[str, str], server: Server) -> Iterator[dict[str, str]]:
    """Through a PgBouncer that pools transactions."""
    with pgbouncer(f"host=127.0.0.1 port={server.port} user=suanpan") as port:
        yield {**where, "DATABASE_URL": f"postgresql://suanpan@127.0.0.1:{port}/suanpan"}


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
        labels = config["Labels"]
        version, base = labels["org.opencontainers.image.version"], labels["org.opencontainers.image.base.name"]
        assert (config["User"], version) == ("10001:10001", metering.__version__)
        assert base == BASE
        assert "Healthcheck" not in config


@pytest.mark.parametrize("name", [PLATFORM, AGENT, BACKUP])
def test_the_process_can_change_nothing_but_temporary_files(images: Buildah, name: str) -> None:
    container = images.container(name)
    looked = f"id -u; find /tmp -maxdepth 0 -writable; {WRITABLE} || true"  # it may not look into folders of root
    assert images.run(container, "sh", "-c", looked).splitlines() == ["10001", "/tmp"]


INSTALLED = """
import re
from importlib.metadata import distributions
print(*sorted({re.sub("[-_.]+", "-", item.name).lower() for item in distributions(path=__import__("sys").path[2:])}))
"""


@pytest.mark.parametrize("name", [PLATFORM, AGENT])
def test_an_image_carries_the_list_of_the_packages_in_it(images: Buildah, name: str) -> None:
    container = images.container(name)
    listed = json.loads(images.run(container, "cat", "/usr/share/suanpan/sbom.cdx.json"))["components"]
    here = {item["purl"].removeprefix("pkg:pypi/").partition("@")[0] for item in listed if not item.get("properties")}
    installed = set(images.run(container, "python", "-P", "-c", INSTALLED).split())
    assert (here - installed, len(installed) >= len(here) > 20) == (set(), True)


def test_the_platforms_image_stays_small(images: Buildah) -> None:
    container = images.container(PLATFORM)
    megabytes, _ = images.run(container, "du", "-sm", "/opt/venv").split()
    assert int(megabytes) < 670
    assert images.run(container, "find", "/opt/venv", "-path", "*/pandas/tests") == ""


def test_the_agents_image_has_every_command_and_nothing_of_the_platform(images: Buildah) -> None:
    container = images.container(AGENT)
    each = f"for command in {' '.join(COMMANDS)}; do python -m metering $command --help | head -n 1; done"
    shown = images.run(container, "sh", "-euc", each).splitlines()
    assert [line.split()[:5] for line in shown] == [["usage:", "python", "-m", "metering", command] for command in COMMANDS]
    absent = "import importlib.util as u; print([n for n in ('billing', 'django', 'psycopg', 'pandas') if u.find_spec(n)])"
    assert images.run(container, "python", "-c", absent) == "[]"


def test_every_part_runs_from_the_image_and_takes_a_record_through_broker_and_worker(
    images: Buildah, where: dict[str, str], pooled: dict[str, str], server: Server, tmp_path: Path
) -> None:
    platform = images.container(PLATFORM, **where)
    images.run(platform, ENTRY, "migrate")
    token = images.run(platform, ENTRY, "manage", "shell", "--verbosity", "0", "--command", TOKEN).splitlines()[-1]
    bearer = {"Authorization": f"Bearer {token}"}
    url = f"http://127.0.0.1:{(port := free_port())}"
    with ExitStack() as stack:
        given = {"web": ("--host", "127.0.0.1", "--port", str(port)), "counter": (), "worker": (), "scheduler": ()}
        for name, options in given.items():
            stack.enter_context(part(images, pooled, tmp_path / name, name, *options))
        until(lambda: answers(url), 180)
        for number in range(2):
            sent = httpx.post(f"{url}/api/v1/usage/tokens", json=[token_record(number)], headers=bearer, timeout=60)
            assert (sent.status_code, sent.json()["accepted"]) == (200, 1)
        folded = "SELECT (SELECT sum(requests) FROM token_hour)::int, (SELECT count(*) FROM token_hour_delta)::int"
        until(lambda: server.ask(folded, "suanpan") == [(2, 0)])
        assert httpx.get(f"{url}/login/", timeout=30).status_code == httpx.codes.OK
        assert "\nsuanpan_database_up 1.0\n" in httpx.get(f"{url}/metrics", timeout=30).text


def test_the_backup_image_takes_and_proves_a_backup(images: Buildah, where: dict[str, str]) -> None:
    container = images.container(BACKUP, **where)
    images.run(container, ENTRY, "manage", "backup", "--out", "/tmp/b.dump")
    assert "/tmp/b.dump holds" in images.run(container, ENTRY, "manage", "restore_check", "/tmp/b.dump")
    assert images.run(container, "age", "--version") != ""
