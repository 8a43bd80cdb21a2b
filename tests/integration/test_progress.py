"""How far a close and an issue are: in the operation's row while they run, on a terminal, and on the page."""

import io
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections

from billing.closing.services.operations import operation_request, operation_run
from billing.invoices.models import Operation
from billing.runtime.progress import progress_text, throttled
from billing.tenancy.app_command import AppCommand
from tests import factories
from tests.factories import allocation_record, apply, ingest_allocations

pytestmark = pytest.mark.filterwarnings("ignore:No directory at:UserWarning")
MONTH, OVER = "2026-10", datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
Progress = tuple[str, int, int]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def used(transactional_db: None, tmp_path: Path) -> None:
    """Two teams with devices; a ledger in which what is committed is seen by others."""
    apply(tmp_path)
    ingest_allocations(allocation_record(1), allocation_record(2, namespace="cv", quantity=3))


def run(kind: str) -> tuple[list[Progress], list[Progress]]:
    """What was reported step by step, and what was in the row at each of these moments for everybody to see."""
    heard: list[Progress] = []
    seen: list[Progress] = []
    operation = operation_request(kind=kind, month=MONTH, actor="fin")

    def elsewhere() -> None:
        seen.append(Operation.objects.values_list("step", "done", "total").get(pk=operation.pk))
        connections.close_all()

    def report_progress(step: str, done: int, total: int) -> None:
        heard.append((step, done, total))
        thread = threading.Thread(target=elsewhere)  # the close itself reads as of one instant
        thread.start()
        thread.join()

    assert operation_run(operation_id=operation.pk, report_progress=report_progress).status == "done"
    return heard, seen


def test_a_close_and_an_issue_report_how_far_they_are(used: None) -> None:
    heard, seen = run("close")
    assert heard == [
        ("rate", 0, 0), ("look", 0, 0), ("cut_off", 0, 0), ("write", 0, 0), ("draft", 1, 2), ("draft", 2, 2),
    ]  # fmt: skip
    assert seen == heard  # also from within the transaction that nobody else sees yet
    heard, seen = run("issue")
    assert heard == [("issue", 0, 2), ("issue", 2, 2)]
    assert seen == heard


def test_the_page_shows_the_step_and_its_count(used: None) -> None:
    operation = operation_request(kind="issue", month=MONTH, actor="fin")
    Operation.objects.filter(pk=operation.pk).update(step="issue", done=300, total=1000, attempts=1)
    client = factories.signed_in(factories.person("fin", "finance"))
    page = client.get(f"/operations/{operation.pk}/").content.decode()
    assert "numbering and issuing invoices" in page
    assert '<progress value="300" max="1000"' in page
    assert "300 of 1,000" in page
    assert "every 1500ms" in page


def test_a_terminal_sees_the_steps_and_a_program_none(used: None) -> None:
    terminal, out = Terminal(), io.StringIO()
    factories.person("ops", "finance")
    call_command("period_close", MONTH, "--json", "--by", "ops", stdout=out, stderr=terminal, force_color=True)
    assert "rating the usage\n" in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()  # red would look like an error
    assert "drafting invoices 2 of 2\n" in terminal.getvalue()
    assert out.getvalue().startswith("{")
    pipe = io.StringIO()
    call_command("invoice_issue", MONTH, "--json", "--by", "ops", stdout=out, stderr=pipe)
    assert pipe.getvalue() == ""


def test_a_line_for_people_reaches_a_pipe_at_once() -> None:
    """`manage.py demo | tee log` would else show its addresses and passwords when it ends."""
    pipe = io.BytesIO()
    out = io.TextIOWrapper(pipe)
    AppCommand(stdout=out).say("Portal: http://127.0.0.1:8000")
    assert pipe.getvalue() == b"Portal: http://127.0.0.1:8000\n"


def test_between_its_beginning_and_end_a_step_is_reported_twice_a_second_at_most() -> None:
    now, heard = [0.0], []
    report_progress = throttled(lambda *reported: heard.append(reported), clock=lambda: now[0])
    for done in range(1, 11):
        report_progress("draft", done, 10)
        now[0] += 0.2
    assert heard == [("draft", 1, 10), ("draft", 4, 10), ("draft", 7, 10), ("draft", 10, 10)]
    assert progress_text("draft", 4, 10) == "drafting invoices 4 of 10"
    assert progress_text("look", 0, 0) == "looking at every reconciliation"
