"""An upgrade and the way back, with the code of the release itself. That is not here, so pytest takes this by its name only.

    SUANPAN_TEST_RELEASE=../suanpan-1.0.0 SUANPAN_TEST_RELEASE_WEB='.venv/bin/granian --interface wsgi --workers 1
        --blocking-threads 4 --port {port} billing.settings.wsgi:application' pytest -s tests/upgrade/there_and_back.py

Two gateways report at half of what they could. The release's web takes reports, this release migrates, both webs work on
the new schema, then only the new one, then only the old one again: the rollback. Nothing may be lost, doubled, or refused
without a time to come again.
"""

import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx

from billing.local.process_list import free_port
from tests.factories.servers import WebProcess, until
from tests.upgrade.conftest import Manage
from tests.upgrade.load import ANSWERS, BATCH, Sender, new_token, sending, stored

MORE = 10 * BATCH
FOLDER = Path(os.environ["SUANPAN_TEST_RELEASE"]).resolve()
COMMAND = os.environ["SUANPAN_TEST_RELEASE_WEB"]


def test_a_release_goes_on_after_the_migration_and_takes_over_again_from_this_one(restored: str, manage: Manage) -> None:
    before, token = stored(restored), new_token(restored)
    senders = [Sender("", token, first) for first in (1_000_000, 2_000_000)]
    new = WebProcess(1, DATABASE_URL=manage.environment["DATABASE_URL"])
    with web_of_release(manage.environment) as old:
        to(senders, old)
        with sending(senders):
            phase("the release", senders)
            manage("migrate", "--no-input")
            phase("the release after the migration", senders)
            new.start()
            try:
                to(senders, old, new.url)
                phase("one gateway to each", senders)
                to(senders, new.url)
                phase("this release", senders)
                to(senders, old)
                phase("the release again", senders)
            finally:
                new.kill()
    answers = sum((sender.answers for sender in senders), Counter[tuple[int, bool]]())
    assert answers.keys() <= ANSWERS
    acknowledged = sum(sender.acknowledged for sender in senders)
    assert stored(restored) == (before[0] + acknowledged, before[1] + 1000 * acknowledged)
    assert sum(sender.duplicates for sender in senders) == 0
    proof = [sys.executable, "-P", str(FOLDER / "manage.py"), "period_verify", "--all"]
    subprocess.run(proof, cwd=FOLDER, env=of_release(manage.environment), check=True)
    manage("period_verify", "--all")
    manage("audit_verify")
    print(f"{acknowledged} records acknowledged, each is there once; all answers: {dict(answers)}")


def of_release(environment: dict[str, str]) -> dict[str, str]:
    return {**environment, "PYTHONPATH": str(FOLDER), "DJANGO_SETTINGS_MODULE": "billing.settings.base"}


@contextmanager
def web_of_release(environment: dict[str, str]) -> Iterator[str]:
    """Its address."""
    port = free_port()
    process = subprocess.Popen(shlex.split(COMMAND.format(port=port)), cwd=FOLDER, env=of_release(environment))
    try:
        until(lambda: is_ready(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=60)


def is_ready(port: int) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"http://127.0.0.1:{port}/healthz", timeout=30).status_code == httpx.codes.OK
    return False


def to(senders: Sequence[Sender], *urls: str) -> None:
    """As a proxy does: from the next report on."""
    for number, sender in enumerate(senders):
        sender.url = urls[number % len(urls)]


def phase(name: str, senders: Sequence[Sender]) -> None:
    """Wait for ten more batches of each, and say how all were answered."""
    before = [(sender.acknowledged, sender.answers.copy()) for sender in senders]
    until(lambda: all(sender.acknowledged >= was + MORE for sender, (was, _) in zip(senders, before, strict=True)))
    answers = Counter[tuple[int, bool]]()
    for sender, (_, was) in zip(senders, before, strict=True):
        answers += sender.answers - was
    print(f"{name}: {dict(answers)}", flush=True)
    assert answers.keys() <= ANSWERS
