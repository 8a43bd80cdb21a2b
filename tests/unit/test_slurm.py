"""Slurm's accounting -> allocations: the recorded report, the newer layouts, the text form, and every refusal."""

import csv
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from metering.__main__ import main
from metering.command_line import json_lines
from metering.records import GpuAllocation, Workload, decode_batch
from metering.slurm.allocations import allocations_of, uncounted_gres
from metering.slurm.command import COLUMNS, csv_of
from metering.slurm.jobs import RejectedEntry, ReportError
from metering.slurm.nodes import cut_nodes
from metering.slurm.report import read_report

CAPTURE = Path(__file__).parent.parent / "golden" / "captures" / "slurm-22.05-sacct.json"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
START = 1_795_209_829  # 2026-11-20T21:23:49Z


def taken(
    content: str | bytes, zone: str | None = None, delimiter: str = "|", **options: Any
) -> tuple[list[GpuAllocation], list[RejectedEntry]]:
    """Records, and what was rejected, of a report."""
    raw = content if isinstance(content, bytes) else content.encode()
    report = read_report(raw, ZoneInfo(zone) if zone else None, delimiter)
    records, without = allocations_of(report.jobs, **{"cluster": "hpc-1", "now": NOW, **options})
    return records, [*report.rejected, *without]


def allocations(content: str | bytes, zone: str | None = None, **options: Any) -> list[GpuAllocation]:
    records, rejected = taken(content, zone, **options)
    assert rejected == []
    return records


def gpu_seconds(records: list[GpuAllocation]) -> Decimal:
    total = timedelta(0)
    for record in records:
        total += (record.known_until - record.started_at) * record.quantity
    return Decimal(total // timedelta(seconds=1))


def test_the_recorded_report_of_22_05_holds_twelve_gpu_seconds() -> None:
    """Two jobs of 2 devices from 1795209829 to 1795209832: 2 x 2 x 3 s = 12 GPU-seconds."""
    records = allocations(CAPTURE.read_bytes(), accelerators={"gpu": "NVIDIA-H800"})
    assert gpu_seconds(records) == 12
    first, second = records
    assert (first.pod, second.pod) == ("1", "2")
    assert first == GpuAllocation(
        allocation_id="hpc-1/sandbox/1@1795209828/slurm/gpu/2026-11-20T21:23:49+00:00", cluster="hpc-1", namespace="team-a",
        pod="1", pod_uid="sandbox/1@1795209828", resource="slurm/gpu", quantity=2, device_fraction=Decimal(1),
        accelerator="NVIDIA-H800", node="localhost", started_at=datetime(2026, 11, 20, 21, 23, 49, tzinfo=UTC),
        ended_at=datetime(2026, 11, 20, 21, 23, 52, tzinfo=UTC), end_reason="completed", scheduler="slurm", queue="main",
        workload=Workload("SlurmJob", "wrap"), labels={"user": "root"},
    )  # fmt: skip


def number(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


def job(**changes: Any) -> dict[str, Any]:
    """A job as 23.11 and later print it; `time` and `tres` are merged."""
    entry = {
        "account": "nlp", "cluster": "hpc", "job_id": 77, "name": "pretrain", "nodes": "n[01-02]", "partition": "h800",
        "user": "ann", "state": {"current": ["COMPLETED"], "reason": "None"},
        "time": {
            "submission": START - 60, "eligible": START - 60, "start": START, "end": START + 3600, "elapsed": 3600,
            "suspended": 0, "limit": number(86_400),
        },
        "tres": {"allocated": [
            {"type": "cpu", "name": "", "id": 1, "count": 64}, {"type": "energy", "name": "", "id": 3, "count": None},
            {"type": "gres", "name": "gpu", "id": 1001, "count": 16},
            {"type": "gres", "name": "gpu:h800", "id": 1002, "count": 16},
        ]},
    }  # fmt: skip
    time = entry["time"] | changes.pop("time", {})  # type: ignore[operator]
    return entry | {"time": time} | changes


def report(*jobs: dict[str, Any], **more: Any) -> str:
    return json.dumps({"jobs": list(jobs), "errors": [], "warnings": [], **more})


def gres(**counts: int) -> dict[str, Any]:
    return {"allocated": [{"type": "gres", "name": name.replace("__", ":"), "count": n} for name, n in counts.items()]}


def test_a_typed_device_is_counted_once_and_named_by_its_type() -> None:
    (record,) = allocations(report(job()), accelerators={"h800": "NVIDIA-H800"})
    assert (record.resource, record.quantity, record.accelerator) == ("slurm/gpu:h800", 16, "NVIDIA-H800")
    assert gpu_seconds([record]) == 16 * 3600
    assert allocations(report(job()))[0].accelerator == "h800"


def test_devices_of_two_types_and_of_none_are_records_of_their_own() -> None:
    records = allocations(report(job(tres=gres(gpu=8, gpu__h800=4, gpu__a800=2))))
    assert [(record.resource, record.quantity) for record in records] == [
        ("slurm/gpu:a800", 2), ("slurm/gpu:h800", 4), ("slurm/gpu", 2),
    ]  # fmt: skip


def test_a_type_that_is_a_mig_profile_is_a_slice_of_its_card() -> None:
    records = allocations(report(job(tres={"allocated": [{"type": "gres", "name": "gpu:a100_3g.20gb", "count": 2}]})))
    assert [(item.accelerator, item.device_fraction) for item in records] == [("a100", Decimal("0.428571428571"))]


@pytest.mark.parametrize(
    ("kind", "fraction"),
    [
        ("rtx_pro_5000_1g.24gb", Decimal("0.5")), ("rtx_pro_6000_1g.24gb", Decimal("0.25")),
        ("nvidia_h100_80gb_hbm3_1g.10gb", Decimal("0.142857142857")), ("z9_1g.24gb", None), ("h100_1g.99gb", None),
        ("1g.24gb", None),
    ],
)  # fmt: skip
def test_a_slice_of_a_card_or_profile_that_nobody_knows_is_no_seventh(kind: str, fraction: Decimal | None) -> None:
    records = allocations(report(job(tres={"allocated": [{"type": "gres", "name": f"gpu:{kind}", "count": 2}]})))
    assert [(item.quantity, item.device_fraction, item.share_unknown is None) for item in records] == [
        (2, fraction, fraction is not None)
    ]


@pytest.mark.parametrize("wrap", [number, lambda value: value])
@pytest.mark.parametrize("states", ["RUNNING", ["RUNNING"], ["RUNNING", "COMPLETING"]])
def test_numbers_and_states_of_every_layout(wrap: Any, states: Any) -> None:
    time = {"start": wrap(START), "end": wrap(0), "elapsed": wrap(900), "submission": wrap(START - 60), "suspended": wrap(0)}
    (record,) = allocations(report(job(time=time, state={"current": states})))
    assert (record.ended_at, record.end_reason, record.observed_until) == (None, None, NOW)
    assert record.started_at == datetime.fromtimestamp(START, UTC)


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("COMPLETED", "completed"), ("CANCELLED", "deleted"), ("FAILED", "failed"), ("TIMEOUT", "failed"),
        ("OUT_OF_MEMORY", "failed"), ("DEADLINE", "failed"), ("NODE_FAIL", "node lost"), ("BOOT_FAIL", "node lost"),
        ("PREEMPTED", "preempted"), ("REQUEUED", "evicted"), ("REVOKED", "deleted"), ("RESIZING", "resized"),
    ],
)  # fmt: skip
def test_the_state_is_the_reason(state: str, reason: str) -> None:
    assert allocations(report(job(state={"current": [state]})))[0].end_reason == reason


def test_every_run_of_a_requeued_job_is_billed_and_the_same_run_only_once() -> None:
    first = job(state={"current": ["NODE_FAIL"]})
    later = {"submission": START + 4000, "start": START + 4100, "end": START + 4200, "elapsed": 100}
    records = allocations(report(first, job(time=later), first))
    assert [record.pod for record in records] == ["77", "77"]
    assert [record.pod_uid for record in records] == [f"hpc/77@{START - 60}", f"hpc/77@{START + 4000}"]
    assert gpu_seconds(records) == 16 * 3700


@pytest.mark.parametrize(
    ("extra", "uid"), [({"db_index": 991}, "hpc/991"), ({"db_index": 991, "sluid": "s1abc"}, "hpc/s1abc")]
)
def test_sluid_or_database_index_are_the_key_where_they_are_reported(extra: dict[str, Any], uid: str) -> None:
    assert allocations(report(job(**extra)))[0].pod_uid == uid


def test_of_two_different_runs_under_one_key_neither_is_taken() -> None:
    records, rejected = taken(report(job(), job(job_id=78), job(account="cv")))
    assert [record.pod for record in records] == ["78"]
    assert [item.source.place for item in rejected] == ["entry 1", "entry 3"]
    assert {str(item.error) for item in rejected} == {
        f"job 77: SLUID: two runs share the key hpc/77@{START - 60}: ask sacct for SLUID or DBIndex"
    }


def test_suspended_time_is_held() -> None:
    (record,) = allocations(report(job(time={"elapsed": 3000, "suspended": 600})))
    assert gpu_seconds([record]) == 16 * 3600


def test_an_eligible_time_in_the_place_of_the_start_is_seen_and_mended() -> None:
    """start shows the eligible time, an hour of waiting would be billed: end - elapsed is the true start."""
    eligible = START - 3600
    (record,) = allocations(report(job(time={"eligible": eligible, "start": eligible})))
    assert record.started_at == datetime.fromtimestamp(START, UTC)


@pytest.mark.parametrize(
    "waiting",
    [
        job(state={"current": ["PENDING"]}, time={"start": 0, "end": 0, "elapsed": 0}),
        job(state={"current": ["PENDING"]}, time={"start": START, "end": 0, "elapsed": 0}),  # expected start
        job(state={"current": ["CANCELLED"]}, time={"end": START, "elapsed": 0}, tres={"allocated": []}),
        job(tres={"allocated": [{"type": "cpu", "name": None, "count": 8}]}),
        job(tres=gres(gpu=0)),
    ],
)
def test_what_never_ran_or_has_no_device_holds_nothing(waiting: dict[str, Any]) -> None:
    assert allocations(report(waiting)) == []


def test_a_run_that_ended_when_it_began_is_reported_with_no_time() -> None:
    (record,) = allocations(report(job(state={"current": ["COMPLETED"]}, time={"end": START, "elapsed": 0})))
    assert record.ended_at == record.started_at == datetime.fromtimestamp(START, UTC)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        ('{"jobs": [', "document: not JSON"),
        ("{}", "jobs: missing"),
        ("[]", "jobs: missing"),
        (report(errors=[{"error": "no connection"}]), "errors: .*no connection"),
        ("Permission denied\n", "document: neither what .* it begins with 'Permission denied'"),
        ("{hello}\nPermission denied\n", "document: neither what .* it begins with '{hello}'"),
    ],
)
def test_a_report_that_is_none_is_refused(content: str, reported: str) -> None:
    with pytest.raises(ReportError, match=reported):
        taken(content)


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (report(job(account=None)), "job 77: Account: missing"),
        (report(job(job_id=None)), "job_id: missing"),
        (report(job(state={})), "job 77: state.current: missing"),
        (report(job(tres={})), "job 77: tres.allocated: missing"),
        (report(job(tres=gres(gpu=2, gpu__h800=4))), "job 77: AllocTRES: gres/gpu=2 is less than the 4"),
        (report(job(time={"start": "noon"})), "job 77: time.start: \"noon\" is not a count"),
        (report(job(time={"start": 5})), "job 77: time.start: 5 is not a time"),
        (report(job(time={"elapsed": 12})), "job 77: Elapsed: 12 s"),
        (report(job(time={"end": START - 5})), "job 77: Elapsed"),
        (report(job(time={"end": 0})), "job 77: End: missing, though the job is COMPLETED"),
        (report(job(time={"submission": 0})), "job 77: Submit: missing"),
        (report(job(tres=gres(gpu=5_000_000))), "job 77: quantity: quantity 5000000: "),
    ],
)
def test_a_broken_entry_is_rejected_with_job_and_field_and_the_rest_is_taken(content: str, reported: str) -> None:
    (broken,) = json.loads(content)["jobs"]
    records, (rejected,) = taken(report(job(job_id=1), broken, job(job_id=2)))
    assert [(record.pod, record.quantity) for record in records] == [("1", 16), ("2", 16)]
    assert re.match(reported, str(rejected.error))
    assert (rejected.source.place, json.loads(rejected.source.text)) == ("entry 2", broken)


HEADER = (
    "JobIDRaw|Cluster|Account|User|Partition|QOS|State|Submit|Start|End|ElapsedRaw|"
    "AllocTRES|NNodes|NodeList|Restarts|Suspended"
)
ROW = (
    "77|hpc|nlp|ann|h800|normal|COMPLETED|2026-10-10T09:59:00|2026-10-10T10:00:00|2026-10-10T11:00:00|3600|"
    "billing=64,cpu=64,gres/gpu:h800=8,gres/gpu=8,mem=900G,node=1|1|n01|0|00:00:00"
)


def table(*rows: str, header: str = HEADER) -> str:
    return "\n".join((header, *rows)) + "\n"


def test_a_table_in_local_time_holds_eight_gpu_hours() -> None:
    step = ROW.replace("77|", "77.batch|", 1)
    (record,) = allocations(table(ROW, step), zone="Asia/Shanghai")
    assert record.started_at == datetime(2026, 10, 10, 2, tzinfo=UTC)
    assert (record.resource, record.node, record.queue, record.labels) == ("slurm/gpu:h800", "n01", "h800", {"user": "ann"})
    assert record.pod_uid == f"hpc/77@{int(datetime(2026, 10, 10, 1, 59, tzinfo=UTC).timestamp())}"
    assert gpu_seconds([record]) == 8 * 3600


def test_unix_times_and_offsets_need_no_zone() -> None:
    unix = ROW.replace("2026-10-10T10:00:00", str(START)).replace("2026-10-10T11:00:00", str(START + 3600))
    unix = unix.replace("2026-10-10T09:59:00", "2026-11-21T05:22:49+08:00")
    (record,) = allocations(table(unix))
    assert record.started_at == datetime.fromtimestamp(START, UTC)
    assert record.pod_uid == f"hpc/77@{START - 60}"


@pytest.mark.parametrize(
    ("elapsed", "end"),
    [(1800, "2026-10-25T03:00:00"), (5400, "2026-10-25T03:00:00"), (3600, "2026-10-25T02:30:00")],
)
def test_an_hour_that_happens_twice_is_settled_by_the_elapsed_time(elapsed: int, end: str) -> None:
    """Berlin, 25 October 2026: 02:30 is 00:30 or 01:30 UTC. Ended at 03:00 (02:00 UTC) after 1800 s, or after 5400 s."""
    row = ROW.replace("2026-10-10T10:00:00", "2026-10-25T02:30:00").replace("2026-10-10T11:00:00", end)
    (record,) = allocations(table(row.replace("|3600|", f"|{elapsed}|")), zone="Europe/Berlin")
    assert record.known_until - record.started_at == timedelta(seconds=elapsed)


@pytest.mark.parametrize(("field", "changed"), [
    ("Start", {"2026-10-10T10:00:00": "2026-10-25T02:30:00", "2026-10-10T11:00:00": "2026-10-25T11:00:00", "|3600|": "||"}),
    ("End", {"2026-10-10T11:00:00": "2026-10-25T02:30:00", "|3600|": "||"}),
    ("Start", {"2026-10-10T10:00:00": "2026-10-25T02:30:00", "2026-10-10T11:00:00": "Unknown", "COMPLETED": "RUNNING"}),
])  # fmt: skip
def test_an_hour_that_happens_twice_and_that_nothing_settles_is_not_guessed_at(field: str, changed: dict[str, str]) -> None:
    """Berlin, 25 October 2026: 02:30 is 00:30 or 01:30 UTC, an hour of 8 devices more or less."""
    row = ROW
    for value, other in changed.items():
        row = row.replace(value, other)
    records, (rejected,) = taken(table(row), zone="Europe/Berlin")
    assert records == []
    assert str(rejected.error) == (
        f"job 77: {field}: 2026-10-25T02:30:00 happens twice when clocks go back: set SLURM_TIME_FORMAT=%s for sacct"
    )
    without_devices = row.replace("gres/gpu:h800=8,gres/gpu=8,", "")
    assert taken(table(without_devices), zone="Europe/Berlin") == ([], [])


def test_a_running_job_of_the_table_is_open_until_now() -> None:
    row = ROW.replace("COMPLETED", "RUNNING").replace("2026-10-10T11:00:00", "Unknown")
    (record,) = allocations(table(row), zone="UTC")
    assert (record.ended_at, record.observed_until) == (None, NOW)


def test_who_cancelled_is_not_part_of_the_state_and_suspension_counts_days() -> None:
    row = ROW.replace("COMPLETED", "CANCELLED by 1000").replace("2026-10-10T11:00:00", "2026-10-12T11:00:00")
    (record,) = allocations(table(row.replace("|0|00:00:00", "|0|2-00:00:00")), zone="UTC")
    assert record.end_reason == "deleted"
    assert gpu_seconds([record]) == 8 * 49 * 3600


@pytest.mark.parametrize(
    ("content", "reported"),
    [
        (table(ROW), "job 77: Start: '2026-10-10T10:00:00' has no offset"),
        (table(ROW, header=HEADER.replace("AllocTRES", "ReqTRES")), "AllocTRES: column missing"),
        (table(ROW, header=HEADER.replace("JobIDRaw", "Job")), "JobIDRaw: column missing"),
        (table(ROW, header=f"{HEADER}|Account"), "header: a column is there twice"),
        ("", "Account: column missing"),
    ],
)
def test_a_table_that_is_none_is_refused(content: str, reported: str) -> None:
    with pytest.raises(ReportError, match=reported):
        taken(content)


@pytest.mark.parametrize(
    ("row", "reported"),
    [
        ("77|hpc", "fields: 2 cells under 16 columns"),
        (f"{ROW}|x", "fields: 17 cells under 16 columns: a field contains '|'"),
        (ROW.replace("|nlp|", "||"), "job 77: Account: missing: nobody would be charged"),
        (ROW.replace("gres/gpu=8", "gres/gpu=many"), "job 77: AllocTRES: 'gres/gpu=many'"),
        (ROW.replace("cpu=64,", "cpu,"), "job 77: AllocTRES: 'cpu' is not name=count"),
        (ROW.replace("|3600|", "|1h|"), "job 77: ElapsedRaw: '1h'"),
        (ROW.replace("|0|00:00:00", "|0|long"), "job 77: Suspended: 'long'"),
        (ROW.replace("T10:00:00", "T25:00:00"), "job 77: Start: '2026-10-10T25:00:00' is not a time"),
        (ROW.replace("COMPLETED", ""), "job 77: State: missing"),
    ],
)
def test_a_broken_row_is_rejected_with_job_and_field_and_the_rest_is_taken(row: str, reported: str) -> None:
    records, (rejected,) = taken(table(ROW.replace("77|", "76|", 1), row, ROW.replace("77|", "78|", 1)), zone="UTC")
    assert [(record.pod, record.quantity) for record in records] == [("76", 8), ("78", 8)]
    assert str(rejected.error).startswith(reported)
    assert (rejected.source.place, rejected.source.text) == ("line 3", row)


def test_other_devices_are_counted_on_request_and_shown_otherwise() -> None:
    entry = job(tres=gres(npu=8, gpumem=100, nic=4))
    jobs = read_report(report(entry).encode()).jobs
    assert uncounted_gres(jobs) == {"nic": jobs[0].end, "npu": jobs[0].end}
    assert uncounted_gres([*jobs, replace(jobs[0], end=None)]) == {"nic": None, "npu": None}
    (record,) = allocations(report(entry), gres=["gpu", "npu"], accelerators={"npu": "Ascend-910B3"})
    assert (record.resource, record.quantity, record.accelerator) == ("slurm/npu", 8, "Ascend-910B3")


def test_pieces_of_a_device_are_never_whole_devices() -> None:
    """Nobody says how many shards make a GPU, nor what a slice of an unknown name is."""
    text = report(job(tres={"allocated": [
        {"type": "gres", "name": "shard", "count": 3}, {"type": "gres", "name": "gpu:a100_mig_half", "count": 1},
        {"type": "gres", "name": "gpu:h800", "count": 2},
    ]}))  # fmt: skip
    records = allocations(text)
    assert {record.resource: (record.quantity, record.device_fraction) for record in records} == {
        "slurm/gpu:a100_mig_half": (1, None), "slurm/gpu:h800": (2, Decimal(1)), "slurm/shard": (3, None),
    }  # fmt: skip


def test_shards_and_mps_are_reported_unless_they_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """They are pieces of GPUs wherever Slurm has them, so a job that holds nothing else is no job without devices."""
    file = tmp_path / "sacct.json"
    file.write_text(report(job(tres=gres(shard=4)), job(job_id=78, tres=gres(mps=50))))
    assert main(["slurm", str(file), "--cluster", "hpc-1"]) == 0
    said = capsys.readouterr()
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [(line["resource"], line["quantity"], line["device_fraction"]) for line in lines] == [
        ("slurm/shard", 4, None), ("slurm/mps", 50, None),
    ]  # fmt: skip
    assert main(["slurm", str(file), "--cluster", "hpc-1", "--gres", "gpu"]) == 3
    said = capsys.readouterr()
    assert said.out == ""
    assert "gres/mps is not counted; add it with --gres if it is a device" in said.err


def test_jobs_with_something_that_is_not_counted_beside_what_is_ask_somebody_to_decide(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "sacct.json"
    file.write_text(report(job(tres=gres(gpu=4)), job(job_id=78, tres=gres(npu=8))))
    assert main(["slurm", str(file), "--cluster", "hpc-1"]) == 3
    said = capsys.readouterr()
    assert [json.loads(line)["resource"] for line in said.out.splitlines()] == ["slurm/gpu"]
    assert "gres/npu is not counted; add it with --gres if it is a device" in said.err
    assert main(["slurm", str(file), "--cluster", "hpc-1", "--gres", "gpu,npu"]) == 0


def test_json_lines_are_the_records_and_the_csv_has_the_columns_of_a_usage_file() -> None:
    running = job(job_id=78, state={"current": ["RUNNING"]}, time={"end": 0})
    records = allocations(report(job(), running))
    lines = json_lines(records).encode().splitlines()
    assert [record for _, record in decode_batch(GpuAllocation, lines).records] == records
    rows = list(csv.DictReader(io.StringIO(csv_of(records))))
    assert tuple(rows[0]) == COLUMNS
    assert rows[0]["workload"] == "SlurmJob/pretrain"
    assert [row["ended_at"] for row in rows] == ["2026-11-20T22:23:49Z", ""]


def test_the_command_prints_writes_and_refuses_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["slurm", str(CAPTURE), "--cluster", "hpc-1", "--accelerators", "gpu=NVIDIA-H800"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    out = tmp_path / "usage.csv"
    assert main(["slurm", str(CAPTURE), "--cluster", "hpc-1", "--out", str(out)]) == 0
    assert out.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert len(out.read_text().splitlines()) == 3
    capsys.readouterr()
    assert main(["slurm", str(tmp_path / "absent"), "--cluster", "hpc-1"]) == 2
    assert capsys.readouterr().err == f"{tmp_path / 'absent'}: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["slurm"],
        ["slurm", "x"],
        ["slurm", "x", "--cluster", "c", "--zone", "Mars"],
        ["slurm", "x", "--cluster", "c", "--now", "2026-10-10T00:00:00"],
        ["slurm", "x", "--cluster", "c", "--accelerators", "h800"],
    ],
)
def test_bad_usage_is_one_line_and_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


NODES = """NodeName=cut1 Arch=x86_64 Gres=gpu:a100_1g.10gb:7(S:0-1),gpu:a100:1 State=IDLE
NodeName=cut2 Gres=gpu:3g.40gb:2 State=IDLE
NodeName=whole[1-3] Gres=gpu:a100:8 State=IDLE
NodeName=login Gres=(null) State=IDLE
"""


@pytest.mark.parametrize(("nodes", "tres", "shares"), [
    ("cut1", gres(gpu=1), [("slurm/gpu", None)]),
    ("cut[1-2]", gres(gpu=2), [("slurm/gpu", None)]),
    ("whole1,cut2", gres(gpu=2), [("slurm/gpu", None)]),
    ("whole[1-2]", gres(gpu=2), [("slurm/gpu", Decimal(1))]),
    ("cut1", gres(**{"gpu": 1, "gpu:a100_1g.10gb": 1}), [("slurm/gpu:a100_1g.10gb", Decimal("0.142857142857"))]),
    ("cut1", gres(**{"gpu": 1, "gpu:a100": 1}), [("slurm/gpu:a100", Decimal(1))]),
    ("cut1", gres(**{"gpu": 3, "gpu:a100": 1}), [("slurm/gpu", None), ("slurm/gpu:a100", Decimal(1))]),
])  # fmt: skip
def test_a_device_without_a_type_is_unknown_where_mig_cuts_cards(
    nodes: str, tres: Any, shares: list[tuple[str, Decimal | None]]
) -> None:
    records = allocations(report(job(nodes=nodes, tres=tres)), cut_nodes=cut_nodes(NODES))
    assert sorted((record.resource, record.device_fraction) for record in records) == shares
    assert all((record.share_unknown is None) == (record.device_fraction is not None) for record in records)


def test_who_takes_devices_without_a_type_for_cards_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, nodes = tmp_path / "sacct.json", tmp_path / "nodes.txt"
    file.write_text(report(job(nodes="cut1", tres=gres(gpu=1))))
    nodes.write_text(NODES)
    assert main(["slurm", str(file), "--cluster", "hpc-1"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["device_fraction"] == "1"
    assert "devices without a type are taken for whole cards" in said.err
    assert main(["slurm", str(file), "--cluster", "hpc-1", "--nodes", str(nodes)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["device_fraction"] is None
    assert "MIG cuts cards of cut1" in json.loads(said.out)["share_unknown"]
    assert said.err == ""
    file.write_text(report(job(tres=gres(**{"gpu": 1, "gpu:h800": 1}))))
    assert main(["slurm", str(file), "--cluster", "hpc-1"]) == 0
    assert capsys.readouterr().err == ""


def test_the_qos_of_a_job_is_a_tag_where_somebody_asks_for_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = report(job(qos="scavenger"), job(job_id=78))
    assert [record.tags for record in allocations(text)] == [None, None]
    assert [record.tags for record in allocations(text, qos=True)] == [{"qos": "scavenger"}, None]
    file, out = tmp_path / "sacct.json", tmp_path / "usage.csv"
    file.write_text(text)
    assert main(["slurm", str(file), "--cluster", "hpc-1", "--qos", "--out", str(out)]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["tags"] for row in rows] == ['{"qos":"scavenger"}', ""]
