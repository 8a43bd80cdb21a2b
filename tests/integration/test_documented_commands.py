"""Every command block of README, operations and upgrading is run, block after block, by bash in one new installation.

What kubectl and Compose run in a container of the platform is run here as well. Blocks that need servers of others are
named in tests/documented.py, with the test that has them; what else needs a cluster or containers is checked by
tests/process/test_cluster_commands.py.
What a page leaves to its reader (files, addresses, passwords, ids of records) is filled in here; all else is as it is
written there. A new block is run with the others: where it needs something, it is filled in here, too.
"""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from billing.local.embedded import Services, attach
from billing.local.embedded.binaries import postgres_directory
from billing.local.process_list import free_port
from tests.documented import (
    CONTAINERS,
    INSTALL,
    OPERATIONS,
    PRODUCTION,
    PROJECT,
    README,
    UPGRADING,
    Block,
    blocks,
    commands,
    inside,
)
from tests.factories.servers import until

pytestmark = pytest.mark.postgresql("an installation of its own, for which `token_store` never ran")

SERVING = ("python -m billing.settings.serve", "python manage.py budget_counter --follow", "celery ")
"""Commands that serve until they are ended; a reader gives each a terminal of its own."""
START = "python manage.py migrate\npython manage.py collectstatic"
WORD = "a-word-of-the-reader"
ALLOCATION = """cluster,namespace,pod,pod_uid,resource,quantity,device_fraction,accelerator,started_at,ended_at
hq-1,nlp-a,train-0,uid-1,nvidia.com/gpu,8,1,NVIDIA-H800,2024-10-01T00:00:00+08:00,2024-10-01T02:00:00+08:00
"""
RECORD = {
    "source": "litellm-hq", "id": "r-1", "time": "2024-10-02T00:00:00+08:00", "consumer": "nlp-key-1",
    "model": "llama-3-8b", "input_tokens": 1_000_000, "cache_read_input_tokens": 200_000,
    "cache_creation_input_tokens": 0, "output_tokens": 100_000, "reasoning_output_tokens": 0,
}  # fmt: skip
TOTAL = Decimal("8002.44")
"""1,000 GPU-hours are committed at 8.0000; 0.8 M input at 2.0000, 0.2 M read from the cache at 0.2000, 0.1 M output at
8.0000 are 1.60 + 0.04 + 0.80."""
WANG = """
from billing.tenancy.people import account_create
account_create(username="wang", full_name="", email="", actor="lin")
"""
BAD = {**RECORD, "time": "2024-11-02T00:00:00+08:00", "cache_read_input_tokens": 2_000_000}


def dated(text: str) -> str:
    """Two years back, so that the months are over whatever the clock says."""
    return text.replace("2026-", "2024-")


class Reader:
    """Somebody who follows the pages: a folder with the project in it, and an empty PostgreSQL and broker."""

    def __init__(self, folder: Path, services: Services) -> None:
        self.folder, self.port = folder, free_port()
        self.url, self.owner_url, self.broker_url = services.database_url, services.database_owner_url, services.broker_url
        self.filled = {
            "127.0.0.1:8000": f"127.0.0.1:{self.port}",
            "billing.settings.serve ": f"billing.settings.serve --port {self.port} ",
            "/var/tmp/": f"{folder}/",
            "/backups/": f"{folder}/",
            "exception_waive 2024-10": "exception_waive 2024-11",
            "quarantine --month 2024-10": "quarantine --month 2024-11",
            "...@db.example.com:5432/suanpan ": f"{WORD}@{self.address}/suanpan_two ",
            "...@host:5432": f"{WORD}@{self.address}",
        }
        self.groups: list[int] = []

    @property
    def address(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def environment(self) -> dict[str, str]:
        """What install.md asks to set, a terminal's PATH, and what PostgreSQL's own programs ask for."""
        programs = (Path(sys.prefix) / "bin", postgres_directory(Path("/nowhere"))[0])
        host, port = self.address.split(":")
        owner = urlsplit(self.owner_url)
        return {
            **os.environ, "PATH": ":".join([*map(str, programs), os.environ["PATH"]]), "PYTHONPATH": str(PROJECT),
            "DATABASE_URL": self.url, "DATABASE_OWNER_URL": self.owner_url, "BROKER_URL": self.broker_url,
            "SECRET_KEY": "f" * 64, "ALLOWED_HOSTS": "127.0.0.1", "STATIC_ROOT": str(self.folder / "static"),
            "SUANPAN_HOME": str(self.folder / "home"), "WEB_WORKERS": "1",
            "PGHOST": host, "PGPORT": port, "PGUSER": str(owner.username), "PGPASSFILE": str(self.folder / "passwords"),
        }  # fmt: skip

    def prepare(self) -> None:
        """What a reader has: the project, the files that the pages name."""
        for name in ("manage.py", "docker", "docs"):
            (self.folder / name).symlink_to(PROJECT / name)
        (self.folder / ".venv").symlink_to(sys.prefix)
        (set_up,) = blocks(README, "yaml")
        files = {
            "set-up.yaml": dated(set_up.text), "october.csv": ALLOCATION,
            "corrected.json": json.dumps({**BAD, "id": "bad-2", "cache_read_input_tokens": 0}),
            "passwords": f"*:*:*:suanpan_owner:{WORD}\n*:*:*:*:{urlsplit(self.owner_url).password}\n",
        }  # fmt: skip
        for name, text in files.items():
            (self.folder / name).write_text(text, encoding="utf-8")
        (self.folder / "passwords").chmod(0o600)
        time = datetime.fromisoformat(str(RECORD["time"])).astimezone(UTC)
        pq.write_table(pa.Table.from_pylist([{**RECORD, "time": time}]), self.folder / "requests.parquet")

    def administers(self) -> None:
        """The roles and the database of install.md, by its own statements."""
        (statements,) = blocks(INSTALL, "sql")
        text = statements.text.replace("'...'", f"'{WORD}'").replace("DATABASE suanpan ", "DATABASE suanpan_two ")
        text = text.replace("suanpan_app", "suanpan_app_two")
        self.filled["suanpan_app:"] = "suanpan_app_two:"
        with psycopg.connect(self.owner_url, autocommit=True) as connection:
            for statement in text.split(";"):
                if statement.partition("--")[0].strip() or "\n" in statement.strip():
                    connection.execute(statement.encode())

    def script(self, text: str) -> str:
        """Commands with what the reader fills in; what serves runs beside what follows."""
        text = dated(text)
        for written, filled in self.filled.items():
            text = text.replace(written, filled)
        lines = text.splitlines()
        return "\n".join(f"{line.partition(' #')[0]} &" if line.startswith(SERVING) else line for line in lines)

    def run(self, text: str, **environment: str) -> tuple[int, str]:
        said = self.folder / f"said-{len(self.groups)}"
        with said.open("wb") as out:
            process = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", self.script(text)], cwd=self.folder,
                env={**self.environment, **environment}, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
            status = process.wait(timeout=1800)
        self.groups.append(process.pid)
        return status, said.read_text(encoding="utf-8")

    def is_ready(self) -> bool:
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/readyz", timeout=5).json()["broker"] == "ok"
        except httpx.TransportError:
            return False

    def ends(self) -> None:
        """Nothing that a block has started is left: each block is a process group of its own."""
        serving = [process for process in psutil.process_iter() if os.getpgid(process.pid) in self.groups]
        for process in serving:
            process.terminate()
        assert psutil.wait_procs(serving, timeout=30)[1] == []

    def manages(self, *arguments: str, status: int = 0) -> str:
        """What a command of the reader's own says."""
        argv = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(argv, cwd=self.folder, env=self.environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout

    def finds_in_quarantine(self) -> None:
        """Three records with more read from the cache than was put in; two are what the page calls 17 and 18."""
        token = self.manages("token_create", "quarantined", "--scope", "usage:write", "--source", "litellm-hq").strip()
        records = [{**BAD, "id": f"bad-{number}"} for number in (1, 2, 3)]
        address, headers = f"http://127.0.0.1:{self.port}/api/v1/usage/tokens", {"Authorization": f"Bearer {token}"}
        answer = httpx.post(address, json=records, headers=headers)
        assert (answer.status_code, len(answer.json()["rejected"])) == (200, 3), answer.text
        kept = json.loads(self.manages("quarantine", "--month", "2024-11", "--json"))["records"]
        number = {record["key"]: record["id"] for record in kept}
        self.filled |= {
            "--dismiss 17": f"--dismiss {number['litellm-hq/bad-1']}",
            "--replay 18": f"--replay {number['litellm-hq/bad-2']}",
        }  # fmt: skip

    def finds_what_blocks(self) -> None:
        """What blocks the month and stays, in place of the gap of the page; the reader is the one account that there is."""
        report = json.loads(self.manages("period_report", "2024-11", "--json", status=3))
        (subject,) = [found["subject"] for found in report["exceptions"] if found["kind"] == "quarantine"]
        self.manages("shell", "--command", WANG)
        self.manages("role", "grant", "wang", "finance", "--by", "lin")
        self.filled |= {"metering_gap hq-1/agent-7": f"quarantine '{subject}'"}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("reader")
    with attach(folder / "services") as services:
        found = Reader(folder, services)
        found.prepare()
        try:
            yield found
        finally:
            found.ends()


FIRST = (START, ".venv/bin/python manage.py apply", "TOKEN=")
"""The pages are read in this order: the installation, the month and the gateway of the README, then what operates it."""


def in_order() -> list[Block]:
    every = [block for page in (*OPERATIONS, README, UPGRADING) for block in blocks(page) if block.is_run]
    first = [block for start in FIRST for block in every if block.text.startswith(start)]
    return [*first, *(block for block in every if block not in first)]


def in_containers(reader: Reader) -> None:
    """What the pages run in containers: the first account, in the second database; a folder and a dump of the first one."""
    every = [text for page in (PRODUCTION, CONTAINERS) for block in blocks(page) for text in commands(block.text)]
    first_account, set_up, exported = (found for text in every if (found := inside(text)))
    (dump,) = (text for text in every if " postgres pg_dump " in text)
    url = f"postgresql://suanpan_app_two:{WORD}@{reader.address}/suanpan_two"
    status, said = reader.run(first_account, DATABASE_URL=url, DATABASE_OWNER_URL="")
    assert (status, "first account: sign in as lin with " in said) == (0, True), said
    status, said = reader.run(set_up)
    assert (status, said.startswith("0 changes, ")) == (0, True), said
    (reader.folder / "out").mkdir()
    assert reader.run(exported.replace("/invoices", f"{reader.folder}/out"))[0] == 0
    assert len(list((reader.folder / "out").glob("*.csv"))) == 1
    assert reader.run(dump[dump.index("pg_dump ") :])[0] == 0
    assert (reader.folder / "suanpan.dump").read_bytes()[:5] == b"PGDMP"


def test_every_command_block_of_readme_operations_and_upgrading_runs_in_one_new_installation(reader: Reader) -> None:
    reader.administers()
    refused = []
    for block in in_order():
        if block.text.startswith("python manage.py quarantine"):
            reader.finds_in_quarantine()
        if block.text.startswith("python manage.py exception_waive"):
            reader.finds_what_blocks()
        status, said = reader.run(block.text)
        if status:
            refused.append((block.name, status, said[-2000:]))
        if block.text.startswith(START):
            until(reader.is_ready)
    assert refused == []
    in_containers(reader)
    (invoice,) = (reader.folder / "invoices").glob("*.csv")
    with invoice.open(encoding="utf-8-sig", newline="") as file:
        assert sum(Decimal(row["amount"]) for row in csv.DictReader(file)) == TOTAL
