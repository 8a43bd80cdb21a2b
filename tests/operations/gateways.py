"""Gateways that report to a web process of a production set-up, and commands on its database."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from billing.runtime.home import PROJECT
from tests.factories import token_record
from tests.factories.servers import until

SET_UP = """
import sys, django; django.setup()
from pathlib import Path
from django.core.management import call_command
from billing.tenancy.tokens import api_token_create
from tests.factories import allocation_record, apply, ingest_allocations
call_command("migrate", verbosity=0, interactive=False)
apply(Path(sys.argv[1]))
ingest_allocations(allocation_record())
print(api_token_create(name="gateway", scopes=["usage:write"], actor="tests")[1])
"""


@dataclass
class Sender:
    """Reports one record after another until told to end; one without an answer is sent again, as gateways do."""

    url: str
    token: str
    first: int
    over: threading.Event = field(default_factory=threading.Event)
    acknowledged: list[int] = field(default_factory=list)
    repeated: int = 0
    last_answer: float = 0.0

    def run(self) -> None:
        number = self.first
        with httpx.Client(headers={"Authorization": f"Bearer {self.token}"}, timeout=20) as client:
            while not self.over.is_set():
                with suppress(httpx.TransportError):
                    answer = client.post(f"{self.url}/api/v1/usage/tokens", json=[token_record(number)])
                    if answer.status_code == httpx.codes.OK:
                        self.acknowledged.append(number)
                        self.repeated += answer.json()["duplicates"]
                        self.last_answer = time.monotonic()
                        number += 1
                        self.over.wait(0.02)
                        continue
                time.sleep(0.1)


def more_acknowledged(senders: Sequence[Sender], number: int) -> None:
    """Wait until each of them has so many more acknowledgements."""
    wanted = [len(sender.acknowledged) + number for sender in senders]
    until(lambda: all(len(sender.acknowledged) >= count for sender, count in zip(senders, wanted, strict=True)))


def python(where: dict[str, str], *arguments: str, status: int | None = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-P", *arguments], cwd=PROJECT, env=where, capture_output=True, text=True, timeout=240, check=False
    )
    assert status is None or done.returncode == status, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout
