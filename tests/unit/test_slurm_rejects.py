"""One user's job never stops the import of the others: what cannot be read is kept, named, and left to somebody."""

import csv
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from billing.usage.files import UsageFileError, read_records
from metering.__main__ import main
from metering.records import GpuAllocation, Workload
from metering.slurm.accounting import problems
from metering.slurm.allocations import allocations_of
from metering.slurm.jobs import RejectedEntry
from metering.slurm.report import read_report

HEADER = (
    "JobIDRaw", "Account", "User", "Partition", "JobName", "State", "Submit", "Start", "End", "ElapsedRaw", "AllocTRES",
)  # fmt: skip
OCTOBER = 1_791_000_000
"""2026-10-03T12:00:00+08:00 = 04:00:00 UTC."""


def row(job: int, name: str = "train", *, account: str = "nlp", state: str = "COMPLETED", hours: int = 1) -> dict[str, str]:
    """A job of 8 devices for some hours."""
    values = (str(job), account, "ann", "h800", name, state, str(OCTOBER - 60), str(OCTOBER), str(OCTOBER + hours * 3600),
              str(hours * 3600), "cpu=64,gres/gpu=8,gres/gpu:h800=8")  # fmt: skip
    return dict(zip(HEADER, values, strict=True))


def table(*rows: dict[str, str], columns: tuple[str, ...] = HEADER, delimiter: str = "|") -> str:
    lines = [columns, *([one.get(name, "") for name in columns] for one in rows)]
    return "".join(f"{delimiter.join(line)}\n" for line in lines)


class Import:
    """The command on a report; what it wrote, said and kept."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self.capsys = folder, capsys
        self.report, self.out = folder / "sacct.txt", folder / "october.csv"
        self.kept = folder / "october.csv.rejects.jsonl"

    def __call__(self, content: str | bytes, *options: str) -> tuple[int, list[dict[str, str]], list[str]]:
        self.report.write_bytes(content if isinstance(content, bytes) else content.encode())
        status = main(["slurm", str(self.report), "--cluster", "hpc-1", "--out", str(self.out), *options])
        said = self.capsys.readouterr().err.replace(f"{self.report}: ", "").splitlines()
        with self.out.open(newline="") as file:
            return status, list(csv.DictReader(file)), said

    def rejects(self) -> list[dict[str, str]]:
        return [json.loads(line) for line in self.kept.read_text().splitlines()]


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Import:
    return Import(tmp_path, capsys)


def jobs(rows: list[dict[str, str]]) -> list[tuple[str, str, str]]:
    return [(item["pod"], item["quantity"], item["workload"]) for item in rows]


def test_a_pipe_in_the_name_of_a_job_is_part_of_the_name(run: Import) -> None:
    """Every other column holds what administrators and Slurm itself write, so the surplus can only be of the name."""
    status, rows, said = run(table(row(1), row(2, "toy|sweep"), row(3, "||")))
    assert (status, said) == (0, [])
    assert jobs(rows) == [("1", "8", "SlurmJob/train"), ("2", "8", "SlurmJob/toy|sweep"), ("3", "8", "SlurmJob/||")]
    assert not run.kept.exists()


@pytest.mark.parametrize("place", [0, 3, len(HEADER) - 1])
def test_it_does_not_matter_where_the_name_is(run: Import, place: int) -> None:
    others = [name for name in HEADER if name != "JobName"]
    columns = (*others[:place], "JobName", *others[place:])
    status, rows, _ = run(table(row(2, "a|b|c"), columns=columns))
    assert (status, jobs(rows)) == (0, [("2", "8", "SlurmJob/a|b|c")])


def test_with_two_columns_of_users_a_pipe_is_not_guessed_at(run: Import) -> None:
    columns = (*HEADER, "Comment")
    good, bad = row(1) | {"Comment": "fine"}, row(2, "toy|sweep") | {"Comment": "x"}
    status, rows, said = run(table(good, bad, row(3), columns=columns))
    assert (status, jobs(rows)) == (3, [("1", "8", "SlurmJob/train"), ("3", "8", "SlurmJob/train")])
    why = "fields: 13 cells under 12 columns: a field contains '|'; use --json, or another --delimiter of sacct"
    assert run.rejects() == [{"place": "line 3", "error": why, "text": table(bad, columns=columns).splitlines()[1]}]
    assert said == [f"line 3: {why}", f"entries not taken, kept in {run.kept}: 1"]


def test_a_delimiter_that_no_name_contains_takes_them_all(run: Import) -> None:
    rows = [row(1) | {"Comment": "a|b"}, row(2, "toy|sweep") | {"Comment": "x"}]
    text = table(*rows, columns=(*HEADER, "Comment"), delimiter="\x1f")
    status, found, _ = run(text, "--delimiter", "\x1f")
    assert (status, jobs(found)) == (0, [("1", "8", "SlurmJob/train"), ("2", "8", "SlurmJob/toy|sweep")])


@pytest.mark.parametrize("break_", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_only_a_line_feed_ends_a_row(run: Import, break_: str) -> None:
    status, rows, _ = run(table(row(1, f"a{break_}b"), row(2)))
    assert (status, jobs(rows)) == (0, [("1", "8", f"SlurmJob/a{break_}b"), ("2", "8", "SlurmJob/train")])


def test_a_line_break_in_a_name_leaves_two_rejected_pieces(run: Import) -> None:
    status, rows, _ = run(table(row(1), row(2, "a\nb"), row(3)))
    assert (status, [item["pod"] for item in rows]) == (3, ["1", "3"])
    assert [(item["place"], item["text"].partition("|")[0]) for item in run.rejects()] == [("line 3", "2"), ("line 4", "b")]


def test_a_report_of_jobs_without_devices_is_nothing_to_import(run: Import) -> None:
    status, rows, said = run(table({**row(1), "AllocTRES": "cpu=64"}))
    assert (status, rows) == (3, [])
    assert "has no job with devices, there is nothing to import" in said


def test_a_job_without_an_account_is_kept_and_the_rest_is_taken(run: Import) -> None:
    status, rows, said = run(table(row(1), row(2, account=""), row(3)))
    assert (status, [item["pod"] for item in rows]) == (3, ["1", "3"])
    assert said[0] == "line 3: job 2: Account: missing: nobody would be charged"
    assert run.rejects()[0]["text"].startswith("2||ann|h800|train|COMPLETED|")
    assert run(table(row(1), row(2), row(3)))[0] == 0
    assert not run.kept.exists()  # nothing is rejected any more


def test_without_a_file_for_the_output_a_rejected_line_is_shown_in_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = table(row(1), row(2, account=""))
    (tmp_path / "sacct.txt").write_text(text)
    assert main(["slurm", str(tmp_path / "sacct.txt"), "--cluster", "hpc-1"]) == 3
    shown = capsys.readouterr()
    assert [json.loads(line)["pod"] for line in shown.out.splitlines()] == ["1"]
    assert shown.err.endswith(f"line 3: job 2: Account: missing: nobody would be charged: {text.splitlines()[2]}\n")


def test_rejected_lines_go_where_they_are_wanted(run: Import, tmp_path: Path) -> None:
    assert run(table(row(1), row(2, account="")), "--rejects", str(tmp_path / "look.jsonl"))[0] == 3
    assert json.loads((tmp_path / "look.jsonl").read_text())["place"] == "line 3"
    assert not run.kept.exists()


def test_more_than_twenty_are_named_in_the_file_alone(run: Import) -> None:
    _, rows, said = run(table(*(row(number, account="") for number in range(30)), row(99)))
    assert ([item["pod"] for item in rows], len(said), len(run.rejects())) == (["99"], 21, 30)


def entry(job: int, **changes: Any) -> dict[str, Any]:
    return {
        "account": "nlp", "job_id": job, "name": "train", "partition": "h800", "user": "ann",
        "state": {"current": ["PREEMPTED"]},
        "time": {"submission": OCTOBER - 60, "start": OCTOBER, "end": OCTOBER + 7200, "elapsed": 7200, "suspended": 0},
        "tres": {"allocated": [{"type": "gres", "name": "gpu:h800", "count": 8}]}, **changes,
    }  # fmt: skip


def document(*entries: Any) -> str:
    return json.dumps({"jobs": list(entries), "errors": []}, indent=1)


def test_entries_of_json_are_rejected_one_by_one(run: Import) -> None:
    """16 device-hours are taken; a job without an account, one without a state and what is no job at all are kept."""
    status, rows, said = run(document(entry(1), entry(2, account=None), entry(3, state={}), "job", entry(5)))
    assert (status, [item["pod"] for item in rows]) == (3, ["1", "5"])
    assert said[:3] == [
        "entry 3: job 3: state.current: missing", "entry 4: jobs: is not an object",
        "entry 2: job 2: Account: missing: nobody would be charged",
    ]  # fmt: skip
    assert [json.loads(item["text"]) for item in run.rejects()] == [entry(3, state={}), "job", entry(2, account=None)]


def test_a_wrong_byte_in_a_name_costs_nobody_a_record(run: Import) -> None:
    content = table(row(1, "caf?"), row(2)).encode().replace(b"?", b"\xe9")
    status, rows, said = run(content)
    assert (status, jobs(rows)) == (0, [("1", "8", "SlurmJob/caf\ufffd"), ("2", "8", "SlurmJob/train")])
    assert said == [f"not UTF-8 at byte {content.index(0xe9)}; wrong bytes are read as \ufffd"]


BANNER = "Welcome to hpc-1 | maintenance on {Sunday}\n{ see https://hpc.example.com }\n\n"


@pytest.mark.parametrize("text", [document(entry(1)), json.dumps({"jobs": [entry(1)]}), table(row(1))])
def test_a_login_banner_before_the_report_is_left_out_and_said(run: Import, text: str) -> None:
    status, rows, said = run(BANNER + text)
    assert (status, [item["pod"] for item in rows]) == (0, ["1"])
    assert said == ["text before the report was left out; it begins with 'Welcome to hpc-1 | maintenance on {Sunday}'"]


def test_lines_are_numbered_as_in_the_file_below_a_banner(run: Import) -> None:
    run(BANNER + table(row(1), row(2, account="")))
    assert run.rejects()[0]["place"] == "line 6"


def test_a_banner_alone_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "sacct.txt").write_text(BANNER)
    assert main(["slurm", str(tmp_path / "sacct.txt"), "--cluster", "hpc-1"]) == 2
    assert capsys.readouterr().err == (
        f"{tmp_path / 'sacct.txt'}: document: neither what `sacct --json` prints nor a table with its header; "
        "it begins with 'Welcome to hpc-1 | maintenance on {Sunday}'\n"
    )


def test_the_usage_file_carries_why_a_job_ended_where_and_whose_it_was(run: Import) -> None:
    assert run(document(entry(1)), "--site", "dc-1")[0] == 0
    (read,) = read_records("gpu", run.out)
    assert read.record == GpuAllocation(
        allocation_id="hpc-1/hpc-1/1@1790999940/slurm/gpu:h800/2026-10-03T04:00:00+00:00", cluster="hpc-1", namespace="nlp",
        pod="1", pod_uid="hpc-1/1@1790999940", resource="slurm/gpu:h800", quantity=8, device_fraction=Decimal(1),
        accelerator="h800", node="", started_at=datetime(2026, 10, 3, 4, tzinfo=UTC),
        ended_at=datetime(2026, 10, 3, 6, tzinfo=UTC), end_reason="preempted", scheduler="slurm", queue="h800",
        workload=Workload("SlurmJob", "train"), labels={"user": "ann"}, site="dc-1",
    )  # fmt: skip


def test_columns_that_an_earlier_import_did_not_have_can_be_left_out(run: Import) -> None:
    """Labels and site are part of what an allocation is: a repeated import without them is the same allocation."""
    status, rows, _ = run(document(entry(1)), "--omit", "end_reason,scheduler,priority_class,site,pool,labels")
    assert status == 0
    assert list(rows[0]) == [
        "cluster", "namespace", "pod", "pod_uid", "resource", "quantity", "device_fraction", "accelerator", "node", "queue",
        "workload", "started_at", "ended_at",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"labels": "ann"}, "labels 'ann' must be a JSON object of texts"),
        ({"labels": '{"user": 1}'}, "labels '{\"user\": 1}' must be a JSON object of texts"),
        ({"ended_at": ""}, "end_reason: end_reason needs an ended_at|end_reason needs an ended_at"),
    ],
)
def test_a_wrong_optional_column_is_named(run: Import, change: dict[str, str], reported: str) -> None:
    _, (one,), _ = run(document(entry(1)))
    with run.out.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(one))
        writer.writeheader()
        writer.writerow(one | change)
    with pytest.raises(UsageFileError, match=f"line 2: ({reported})"):
        list(read_records("gpu", run.out, datetime(2026, 11, 1, tzinfo=UTC)))


def test_what_others_named_does_nothing_to_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs\x1b[31m.txt"
    assert main(["slurm", str(path), "--cluster", "hpc-1", "--out", str(tmp_path / "usage.csv")]) == 2
    shown = capsys.readouterr().err
    assert r"jobs\x1b[31m.txt: " in shown
    assert "\x1b" not in shown


def rejected(*rows: dict[str, str]) -> list[RejectedEntry]:
    report = read_report(table(*rows).encode())
    return [*report.rejected, *allocations_of(report.jobs, cluster="hpc-1", now=datetime.now(UTC))[1]]


def test_a_run_that_goes_on_is_a_problem_of_every_month_and_one_that_ended_only_of_its_last() -> None:
    """The platform notes a subject once in a month: what was decided of October does not hold for November."""
    runs = row(1, account="", state="RUNNING") | {"End": "Unknown"}, row(2, account="")
    october, november = (problems(rejected(*runs), datetime(2026, month, 4, tzinfo=UTC)) for month in (10, 11))
    first, second = (f"{job} of 2026-10-03T03:59:00Z" for job in (1, 2))
    assert {name: note["until"].month for name, note in october.items()} == {first: 10, second: 10}
    assert {name: note["until"].month for name, note in november.items()} == {first: 11, second: 10}
    said = {note["text"] for note in october.values()}
    assert said == {f"job {job}: Account: missing: nobody would be charged" for job in (1, 2)}


def test_a_later_run_of_a_job_is_a_problem_of_its_own() -> None:
    times = {"Submit": 7000, "Start": 7200, "End": 10_800}
    again = row(1, account="") | {name: str(OCTOBER + at) for name, at in times.items()}
    assert len(problems(rejected(row(1, account=""), again), datetime(2026, 10, 4, tzinfo=UTC))) == 2


def test_more_problems_than_the_platform_takes_are_said_to_be_more() -> None:
    """It takes 100 subjects: 99 of the 120, and that there are 21 more."""
    found = problems(rejected(*(row(job, account="") for job in range(120))), datetime(2026, 10, 4, tzinfo=UTC))
    assert (len(found), found["others"]["text"]) == (100, "21 more cannot be billed: see what the command printed")
