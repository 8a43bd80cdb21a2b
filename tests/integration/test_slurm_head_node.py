"""A head node of Slurm reports what its sacct says: jobs, how far they are complete, and what somebody must solve."""

import copy
import json
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.tenancy.tokens import api_token_create
from billing.usage.models import AgentDiagnostic, AgentWatermark, AllocationRevision, CoverageNote, GpuAllocation
from billing.usage.selectors import allocated_twice_by_pod, not_taken_in
from billing.usage.services import share_declare
from metering.__main__ import main
from metering.intervals import Interval, month_of
from tests.documented import AGENTS, filled, of_page, words
from tests.factories import apply

pytestmark = pytest.mark.django_db(transaction=True)
CAPTURE = Path(__file__).parents[1] / "golden/captures/slurm-22.05-sacct.json"
DAY_S = 86_400
SACCT = """#!{python}
import json, pathlib, sys
pathlib.Path({folder!r}, "asked").write_text(" ".join(sys.argv[1:]))
failing = pathlib.Path({folder!r}, "failing")
if failing.exists():
    sys.exit("sacct: error: Problem talking to the database: Connection refused")
table = "--parsable2" in sys.argv
report = pathlib.Path({folder!r}, "report.txt" if table else "report.json").read_text()
if not table and "--local" not in sys.argv:  # as with FederationParameters=fed_display: those of all clusters
    everywhere = json.loads(report)
    everywhere["jobs"] += [{{**job, "cluster": "sibling", "job_id": job["job_id"] + 1000}} for job in everywhere["jobs"]]
    report = json.dumps(everywhere)
print(report)
"""
ROW = {
    "JobIDRaw": "1", "Cluster": "sandbox", "JobName": "a|b", "Account": "team-a", "User": "ann", "Partition": "main",
    "State": "COMPLETED", "ElapsedRaw": "3600", "Suspended": "00:00:00", "AllocTRES": "cpu=2,gres/gpu:h800=2",
    "NodeList": "n1", "QOS": "normal",
}  # fmt: skip
"""A job of the table form, whose name contains the delimiter."""


class HeadNode:
    """A machine with an sacct, which prints what the test put into its database."""

    def __init__(self, folder: Path, url: str, token: str) -> None:
        self.folder, self.now = folder, int(time.time())
        (folder / "sacct").write_text(SACCT.format(python=sys.executable, folder=str(folder)))
        (folder / "sacct").chmod(0o755)
        (folder / "token").write_text(token)
        self.sending = ["--endpoint", url, "--token-file", str(folder / "token"), "--state", str(folder / "spool.db")]
        self.recorded: dict[str, Any] = json.loads(CAPTURE.read_text())
        self.model = self.recorded["jobs"][0]
        self.jobs()

    def jobs(self, *rows: tuple[int, int, int | None, dict[str, Any]]) -> None:
        """Number, start in seconds before now, seconds or None while it runs, and what differs from the recorded job."""
        listed = []
        for number, ago, seconds, changed in rows:
            job = copy.deepcopy(self.model)
            start = self.now - ago
            end = start + seconds if seconds is not None else 0
            job["time"] |= {"submission": start, "eligible": start, "start": start, "end": end,
                            "elapsed": seconds if seconds is not None else ago}  # fmt: skip
            job |= {"job_id": number, "state": {"current": "COMPLETED" if end else "RUNNING", "reason": "None"}, **changed}
            listed.append(job)
        (self.folder / "report.json").write_text(json.dumps({**self.recorded, "jobs": listed}))

    def report(self, *more: str, days: int = 7) -> int:
        given = ["slurm", "--cluster", "hq-1", "--accelerators", "gpu=NVIDIA-H800", "--days", str(days)]
        return main([*given, *(more or self.sending)])


@pytest.fixture
def head_node(tmp_path: Path, live_server: Any, monkeypatch: pytest.MonkeyPatch) -> HeadNode:
    apply(tmp_path)
    token = api_token_create(name="slurm", scopes=["usage:write"], source="hq-1", actor="tests")[1]
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return HeadNode(tmp_path, live_server.url, token)


def kept() -> dict[str, tuple[int, int | None]]:
    """Devices and seconds, or None while it runs, by job."""
    return {
        row.pod: (row.quantity, int((row.ended_at - row.started_at).total_seconds()) if row.ended_at else None)
        for row in GpuAllocation.objects.all()
    }


def these_days() -> Interval:
    now = datetime.now(UTC)
    return Interval(now - timedelta(days=1), now + timedelta(days=1))


def unknown_resources() -> list[str]:
    """Resources of which the report of a month of today says that nobody knows them."""
    return [subject for what, subject, _, _ in not_taken_in(these_days()) if what == "agent unknown"]


def test_jobs_that_ended_and_jobs_that_run_are_in_the_ledger_once(head_node: HeadNode) -> None:
    head_node.jobs((1, 7200, 3600, {}), (2, 5000, None, {}))
    assert head_node.report() == 0
    asked = (head_node.folder / "asked").read_text()
    assert asked == "--json --duplicates --allusers --local --starttime=now-604800seconds"
    assert kept() == {"1": (2, 3600), "2": (2, None)}
    head_node.jobs((1, 7200, 3600, {}), (2, 5000, 4000, {}))
    assert head_node.report() == 0
    assert kept() == {"1": (2, 3600), "2": (2, 4000)}


def test_a_job_that_held_nothing_after_all_takes_back_what_was_reported(head_node: HeadNode) -> None:
    """`sacctmgr show runawayjobs` ends a job whose end was lost at its start: what it seemed to hold since is no usage."""
    head_node.jobs((1, 7200, None, {}))
    assert head_node.report() == 0
    assert AllocationRevision.objects.count() == 1
    head_node.jobs((1, 7200, 0, {}))
    assert head_node.report() == 0
    assert kept() == {"1": (2, 0)}
    assert not AllocationRevision.objects.exists()


def test_a_run_that_is_reported_under_another_key_is_held_twice(head_node: HeadNode) -> None:
    """Slurm 25.11 gives runs a SLUID, by which they are known from then on: those of the last days are reported again.

    Job 1 held its devices for 3600 s, and is there twice. Job 2 ran a second time after its first, and is no such case.
    """
    head_node.jobs((1, 7200, 3600, {}), (2, 7200, 600, {}))
    assert head_node.report() == 0
    head_node.jobs((1, 7200, 3600, {"sluid": "s1abc"}), (2, 6000, 600, {"sluid": "s2abc"}))
    assert head_node.report() == 0
    assert GpuAllocation.objects.count() == 4
    assert allocated_twice_by_pod(these_days()) == [("hq-1", "sandbox/1", 3_600_000_000)]


def test_it_says_how_far_its_jobs_are_complete(head_node: HeadNode) -> None:
    """Ten minutes less than now: the controller hands jobs to the database a little late."""
    before = datetime.now(UTC)
    assert head_node.report() == 0
    (mark,) = AgentWatermark.objects.filter(cluster="hq-1", agent="slurm")
    assert before - timedelta(minutes=10) <= mark.watermark <= datetime.now(UTC) - timedelta(minutes=10)
    assert head_node.report() == 0
    assert not CoverageNote.objects.filter(agent="slurm").exists()


def test_a_run_that_does_not_look_back_to_the_one_before_leaves_a_gap(head_node: HeadNode) -> None:
    """The run before was 30 days ago and one day is asked for: 29 days that nobody saw."""
    then = datetime.now(UTC) - timedelta(days=30)
    AgentWatermark.objects.create(cluster="hq-1", agent="slurm", watermark=then, watched_since=then, reported_at=then)
    assert head_node.report(days=1) == 0
    (note,) = CoverageNote.objects.filter(agent="slurm", kind="unwatched")
    assert note.start == then
    assert 29 * DAY_S <= (note.until - note.start).total_seconds() < 29 * DAY_S + 60


def test_a_job_that_cannot_be_billed_is_a_problem_that_the_platform_shows(head_node: HeadNode) -> None:
    head_node.jobs((1, 7200, 3600, {}), (2, 5000, 60, {"account": ""}))
    assert head_node.report() == 3
    assert kept() == {"1": (2, 3600)}
    (problem,) = AgentDiagnostic.objects.filter(cluster="hq-1", agent="slurm")
    submitted, ended = (datetime.fromtimestamp(head_node.now - ago, UTC) for ago in (5000, 4940))
    month = month_of(ended, "Asia/Shanghai")
    assert (problem.kind, problem.subject) == ("problem", f"2 of {submitted:%Y-%m-%dT%H:%M:%SZ}, {month}")
    assert problem.text == "job 2: Account: missing: nobody would be charged"


def test_a_generic_resource_that_nobody_counts_blocks_until_somebody_decides(head_node: HeadNode) -> None:
    """Cards under a name of their own would else be billed to nobody, with a line in the log of the head node alone."""
    tres = [{"type": "gres", "name": name, "count": count} for name, count in (("npu", 8), ("nic", 1), ("gpumem", 100))]
    head_node.jobs((1, 7200, 3600, {"tres": {"allocated": tres}}))
    assert head_node.report() == 0
    month = month_of(datetime.fromtimestamp(head_node.now - 3600, UTC), "Asia/Shanghai")
    assert unknown_resources() == [f"hq-1/slurm/nic, {month}", f"hq-1/slurm/npu, {month}"]
    share_declare(
        cluster="hq-1", resource="slurm/nic", device_fraction=None, actor="tests", reason="a network card",
        now=datetime.now(UTC),
    )
    assert unknown_resources() == [f"hq-1/slurm/npu, {month}"]
    assert head_node.report(*head_node.sending, "--gres", "gpu,npu") == 0
    assert kept() == {"1": (8, 3600)}


def test_a_generic_resource_that_nobody_counts_blocks_every_month_in_which_it_was_held(head_node: HeadNode) -> None:
    """Forty days ago and today; the reports after them say nothing of a month in which no job held any."""
    tres = {"tres": {"allocated": [{"type": "gres", "name": "npu", "count": 8}]}}
    head_node.jobs((1, 40 * DAY_S, 3600, tres))
    assert head_node.report() == head_node.report() == 0
    head_node.jobs((1, 40 * DAY_S, 3600, tres), (2, 7200, 3600, tres))
    assert head_node.report() == head_node.report() == 0
    ends = (head_node.now - 40 * DAY_S + 3600, head_node.now - 3600)
    months = [month_of(datetime.fromtimestamp(end, UTC), "Asia/Shanghai") for end in ends]
    rows = AgentDiagnostic.objects.filter(kind="unknown").order_by("at")
    assert [row.subject for row in rows] == [f"slurm/npu, {month}" for month in months]
    assert [int(row.at.timestamp()) for row in rows] == list(ends)


def test_an_accounting_that_tracks_no_devices_blocks(head_node: HeadNode, capsys: pytest.CaptureFixture[str]) -> None:
    """By default Slurm accounts for no generic resources: without AccountingStorageTRES every job looks like one of CPUs."""
    head_node.jobs((1, 7200, 3600, {"tres": {"allocated": [{"type": "cpu", "name": None, "count": 64}]}}))
    assert head_node.report() == 3
    assert "AccountingStorageTRES" in capsys.readouterr().err
    (problem,) = AgentDiagnostic.objects.filter(cluster="hq-1", agent="slurm")
    assert problem.text == (
        "AllocTRES: no job of these days shows a generic resource: name gres/gpu in AccountingStorageTRES of slurm.conf, or "
        "waive this where no job asked for a GPU"
    )
    head_node.jobs()
    assert head_node.report() == 0


def test_an_sacct_that_fails_reports_nothing_and_moves_no_watermark(
    head_node: HeadNode, capsys: pytest.CaptureFixture[str]
) -> None:
    (head_node.folder / "failing").touch()
    assert head_node.report() == 2
    assert capsys.readouterr().err == (
        "sacct: sacct: ended with status 1: sacct: error: Problem talking to the database: Connection refused\n"
    )
    assert not AgentWatermark.objects.filter(agent="slurm").exists()
    assert kept() == {}


def test_without_an_endpoint_it_shows_what_it_would_send(head_node: HeadNode, capsys: pytest.CaptureFixture[str]) -> None:
    head_node.jobs((1, 7200, 3600, {}))
    assert head_node.report("--format", "json") == 0
    assert json.loads(capsys.readouterr().out)["pod"] == "1"
    assert kept() == {}


@pytest.mark.parametrize(("given", "said"), [
    ([], "give FILE or --days"),
    (["report.json", "--days", "7"], "give FILE or --days"),
    (["--days", "7", "--endpoint", "https://h.example.com"], "--endpoint needs --token-file"),
    (["report.json", "--endpoint", "https://h.example.com", "--token-file", "token"],
     "--endpoint goes with --days, and without --out"),
])  # fmt: skip
def test_options_that_do_not_go_together_are_one_line(
    given: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slurm", "--cluster", "hq-1", *given]) == 2
    assert capsys.readouterr().err == f"python -m metering slurm: {said}, see --help\n"


# --- what the page says ----------------------------------------------------------------------------------------------


def test_the_command_of_the_page_sends_the_jobs(head_node: HeadNode, monkeypatch: pytest.MonkeyPatch) -> None:
    head_node.jobs((1, 7200, 3600, {}))
    monkeypatch.chdir(head_node.folder)
    (command,) = of_page(AGENTS, "python -m metering slurm --days")
    own = {"hpc-1": "hq-1", "h800=": "gpu=", "https://suanpan.example.com": head_node.sending[1]}
    assert main([*words(filled(command, own))[3:], *head_node.sending[-2:]]) == 0
    assert kept() == {"1": (2, 3600)}


def test_a_month_is_taken_from_a_report_by_the_commands_of_the_page(
    head_node: HeadNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    head_node.jobs((1, 7200, 3600, {}))
    monkeypatch.chdir(head_node.folder)
    ask, convert, take = of_page(AGENTS, "sacct --json")
    subprocess.run(["bash", "-euc", ask], check=True)
    assert main(words(filled(convert, {"h800=": "gpu="}))[3:]) == 0
    call_command(*words(take)[2:])
    assert kept() == {"1": (2, 3600)}


def test_a_table_is_taken_by_the_command_of_the_page(head_node: HeadNode, monkeypatch: pytest.MonkeyPatch) -> None:
    start = head_node.now - 7200
    times = {"Submit": str(start), "Start": str(start), "End": str(start + 3600)}
    monkeypatch.chdir(head_node.folder)
    (ask,) = of_page(AGENTS, "SLURM_TIME_FORMAT")
    asked = words(ask)
    columns = asked[asked.index("--format") + 1].split(",")
    (head_node.folder / "report.txt").write_text("\n".join("|".join(row) for row in (
        columns, [{**ROW, **times}[column] for column in columns])))  # fmt: skip
    subprocess.run(["bash", "-euc", ask], check=True)
    _, convert, take = of_page(AGENTS, "sacct --json")
    assert main(words(filled(convert, {"sacct.json": "sacct.txt"}))[3:]) == 0
    call_command(*words(take)[2:])
    assert kept() == {"1": (2, 3600)}
