"""Usage of a closed month in an archive: what is in it, that it is what the ledger has, and how a change of it is found."""

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import call_command
from moto.server import ThreadedMotoServer

from billing.closing.services.closing import period_close
from billing.rating.recount import tokens_recount
from billing.tenancy.models import AuditEntry
from billing.usage.archive.places import ArchiveError, archive_at
from billing.usage.archive.sealed import Seal, seal_faults, seals
from billing.usage.services import sealing
from billing.usage.services.sealing import ClosedMonth, SealError, usage_seal
from billing.usage.token_file import file_token_sums
from metering.intervals import billing_month
from metering.token_keys import token_key
from tests import factories
from tests.documented import SCALE, filled, of_page, words
from tests.factories import allocation_record, apply, ingest_capacity, ingest_sample, ingest_tokens, person, token_record
from tests.factories.commands import Manage
from tests.factories.months import NOVEMBER_OVER
from tests.stored_rows import rewrite

pytestmark = pytest.mark.django_db(transaction=True)

OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
OCTOBER = billing_month("2026-10", "Asia/Shanghai")
COUNTS = ("requests", "input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens", "output_tokens",
          "reasoning_output_tokens")  # fmt: skip
MASKED = "0190b5a2-7c1e-7abc-8def-0123456789ab"


@pytest.fixture
def october(tmp_path: Path) -> None:
    """Three requests of two days of Shanghai in three of UTC, one of November; 8 GPUs over a midnight of UTC; closed."""
    apply(tmp_path)
    ingest_tokens(
        token_record(1, time="2026-10-01T00:00:00+08:00", attributes={"tags": ["a,b", 'c"d', "算盘"]}),
        token_record(2, id=MASKED, time="2026-10-15T07:59:59+08:00", site="", provider="azure"),
        token_record(3, time="2026-10-15T08:00:00+08:00", output_tokens=40_000, reasoning_output_tokens=0),
        token_record(4, time="2026-11-01T00:00:00+08:00"),
    )
    over_midnight = {"started_at": "2026-10-09T23:00:00Z", "ended_at": "2026-10-10T02:00:00Z",
                     "observed_until": "2026-10-10T02:00:00Z"}  # fmt: skip
    factories.ingest_allocations(
        allocation_record(1, **over_midnight), allocation_record(2, device_fraction="0.142857142857")
    )
    ingest_sample(pod_uid="uid-1", start="2026-10-09T23:00:00Z", end="2026-10-10T00:00:00Z", gpu_seconds="28800.5",
                  mfu="0.41", hfu="0.5", method="tests")  # fmt: skip
    ingest_capacity(cluster="hq-1", node="node-1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=16,
                    **{"from": "2026-10-01T00:00:00Z", "until": "2026-10-31T00:00:00Z"})  # fmt: skip
    period_close(month="2026-10", actor="ops", now=OVER)


def closed(close_seq: int = 1) -> ClosedMonth:
    return ClosedMonth("2026-10", OCTOBER, "Asia/Shanghai", close_seq)


def sealed(address: str | Path, now: datetime = OVER, **more: Any) -> Seal:
    seal, _ = usage_seal(closed=closed(), address=str(address), actor="ops", now=now, **more)
    return seal


def rows(seal: Seal, folder: Path, kind: str) -> list[dict[str, Any]]:
    files = [folder / seal.folder / file["name"] for file in seal.manifest["files"] if file["kind"] == kind]
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def faults(seal: Seal) -> list[str]:
    return list(seal_faults(seal, lambda _: None))


def test_a_seal_has_every_record_of_the_month_in_the_order_of_keys(october: None, tmp_path: Path) -> None:
    found = rows(sealed(tmp_path / "archive"), tmp_path / "archive", "tokens")
    assert [row["key"] for row in found] == sorted(token_key("litellm-hq", name) for name in ("req-1", MASKED, "req-3"))
    by_id = {row["id"]: row for row in found}
    assert by_id["req-1"]["time"] == OCTOBER.start
    assert json.loads(by_id["req-1"]["attributes"]) == {"tags": ["a,b", 'c"d', "算盘"]}
    assert (by_id[MASKED]["provider"], by_id[MASKED]["status"], by_id[MASKED]["attributes"]) == ("azure", None, None)
    assert [by_id["req-3"][name] for name in COUNTS[1:]] == [1000, 200, 0, 40_000, 0]
    assert {row["epoch"] for row in found} == {0}
    microseconds = (datetime(2026, 10, 15, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    names = ["litellm-hq", "nlp-key-1", "llama-3-8b", "", "", ""]
    texts = ["req-3", str(microseconds), *names, "1000", "200", "0", "40000", "0", ""]
    assert by_id["req-3"]["content"] == sha256("\x1f".join(texts).encode()).digest()[:16]


def test_a_seal_has_allocations_ends_samples_and_capacity(october: None, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    seal = sealed(folder)
    assert seal.manifest["rows"] == {"tokens": 3, "allocations": 2, "ends": 0, "samples": 1, "capacity": 1,
                                     "details": 0}  # fmt: skip
    one, two = rows(seal, folder, "allocations")
    assert (one["allocation_id"], one["quantity"], one["start"]) == ("alloc-1", 8, datetime(2026, 10, 9, 23, tzinfo=UTC))
    assert (two["device_fraction"], two["accelerator"]) == (Decimal("0.142857142857"), "NVIDIA-H800")
    (sample,) = rows(seal, folder, "samples")
    assert (sample["gpu_seconds"], sample["mfu"], sample["pod_uid"]) == (Decimal("28800.5"), Decimal("0.41"), "uid-1")
    (capacity,) = rows(seal, folder, "capacity")
    assert (capacity["quantity"], capacity["until"]) == (16, datetime(2026, 10, 31, tzinfo=UTC))


def test_the_manifest_has_the_sums_of_each_source_and_day(october: None, tmp_path: Path) -> None:
    """8 devices an hour before midnight and two behind it; a seventh of 8 devices for 9,433 seconds."""
    manifest = sealed(tmp_path).manifest
    assert [(row["day"], *(row[name] for name in COUNTS)) for row in manifest["tokens"]] == [
        ("2026-09-30", "1", "1000", "200", "0", "100", "40"), ("2026-10-14", "1", "1000", "200", "0", "100", "40"),
        ("2026-10-15", "1", "1000", "200", "0", "40000", "0"),
    ]  # fmt: skip
    seventh = 8 * Decimal("0.142857142857") * 9433 * 10**6
    assert [(row["cluster"], row["day"], Decimal(row["device_microseconds"])) for row in manifest["gpu"]] == [
        ("hq-1", "2026-10-09", 8 * 3600 * 10**6), ("hq-1", "2026-10-10", 8 * 7200 * 10**6 + seventh),
    ]  # fmt: skip
    assert list(manifest["closes"]) == ["1"]
    assert (manifest["close_seq"], manifest["before"], manifest["month"]) == (1, 1, "2026-10")


def test_the_audit_log_has_the_hash_of_the_manifest(october: None, tmp_path: Path) -> None:
    seal = sealed(tmp_path)
    entry = AuditEntry.objects.get(action="usage_seal")
    assert (entry.actor, entry.subject, entry.detail["rows"]["tokens"], entry.detail["files"]) == ("ops", "2026-10", 3, 4)
    text = (tmp_path / seal.folder / "manifest.json").read_bytes()
    assert entry.detail["manifest_sha256"] == sha256(text).hexdigest()
    assert entry.detail["archive"] == tmp_path.as_uri()
    assert faults(seal) == []


def test_a_month_that_is_sealed_is_not_sealed_again_until_a_later_close(october: None, tmp_path: Path) -> None:
    """A late record is in the seal after the next close; the recount of the first close leaves it out."""
    first = sealed(tmp_path)
    ingest_tokens(token_record(5))
    assert usage_seal(closed=closed(), address=str(tmp_path), actor="ops", now=NOVEMBER_OVER) == (first, False)
    period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    second, made = usage_seal(closed=closed(), address=str(tmp_path), actor="ops", now=NOVEMBER_OVER)
    assert (made, second.before, second.manifest["rows"]["tokens"]) == (True, 2, 4)
    assert sorted(row["epoch"] for row in rows(second, tmp_path, "tokens")) == [0, 0, 0, 1]
    assert [faults(seal) for seal in seals("2026-10")] == [[], []]
    call_command("period_recount", "2026-10", "--sealed", str(tmp_path))


def test_files_of_a_few_rows_are_one_month_together(october: None, tmp_path: Path) -> None:
    seal = sealed(tmp_path, rows_a_file=1)
    assert sum(file["kind"] == "tokens" for file in seal.manifest["files"]) == 1  # a batch of the reader is never divided
    assert faults(seal) == []


@pytest.mark.parametrize("name", ["manifest.json", "tokens-00000.parquet", "allocations-00000.parquet"])
def test_a_flipped_byte_is_found_and_so_is_a_missing_file(
    october: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    archive = tmp_path / "archive"
    path = archive / sealed(archive).folder / name
    call_command("usage_seal", "--verify")
    octets = bytearray(path.read_bytes())
    octets[len(octets) // 2] ^= 1
    path.write_bytes(octets)
    verify = partial(Manage(capsys), "usage_seal", "--verify")
    found = verify("2026-10")
    assert (found.status, f"{name}: has SHA-256" in found.out) == (3, True)
    path.unlink()
    found = verify("--json")
    (seal,) = json.loads(found.out)["seals"]
    assert (found.status, len(seal["faults"])) == (3, 1)
    assert "No such file" in seal["faults"][0]


def test_a_recount_of_a_damaged_archive_is_refused(
    october: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "archive"
    seal = sealed(archive)
    path = archive / seal.folder / "tokens-00000.parquet"
    octets = bytearray(path.read_bytes())
    octets[10] ^= 1
    path.write_bytes(octets)
    assert "its manifest says" in Manage(capsys)("period_recount", "2026-10", "--sealed", archive).error


def test_the_sealed_month_gives_what_was_billed(
    october: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Input 2,400 at 2, cache 600 at 0.2, output 40,200 at 8 a million: 0.00 + 0.00 + 0.32."""
    archive = tmp_path / "archive"
    sealed(archive)
    recount = partial(Manage(capsys), "period_recount", "2026-10", "--sealed")
    assert recount(archive).out == "3 records give 3 lines of 0.32 in sum; 0 lines differ from what was billed\n"
    moved = archive.rename(tmp_path / "elsewhere")
    assert recount(moved).out.endswith("0 lines differ from what was billed\n")


def test_a_recount_by_spark_without_pyspark_says_what_to_install(
    october: None, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sealed(tmp_path / "archive")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    monkeypatch.setitem(sys.modules, "py4j", None)
    asked = ("--sealed", tmp_path / "archive", "--engine", "spark://127.0.0.1:7077")
    printed = Manage(capsys)("period_recount", "2026-10", *asked)
    assert printed.out == ""
    assert "needs pyspark (`pip install -r requirements-cluster.txt`)" in printed.error


def test_a_record_that_is_in_two_files_counts_once_and_one_of_a_later_epoch_not_at_all(
    october: None, tmp_path: Path
) -> None:
    """As a store that cannot refuse a repeat would seal them."""
    seal = sealed(tmp_path)
    path = tmp_path / seal.folder / "tokens-00000.parquet"
    table = pq.read_table(path)
    again, late = tmp_path / "again.parquet", tmp_path / "late.parquet"
    pq.write_table(table.slice(0, 2), again)
    epoch, number = table.schema.get_field_index("epoch"), table.schema.get_field_index("id")
    pq.write_table(table.slice(1, 1).set_column(epoch, "epoch", pa.array([1])), tmp_path / "r.parquet")
    later = table.slice(0, 1).set_column(number, "id", pa.array(["late"]))
    pq.write_table(later.set_column(epoch, "epoch", pa.array([1])), late)
    files = [path, again, late, tmp_path / "r.parquet"]
    for before, records in ((1, 3), (2, 4)):
        engine = partial(file_token_sums, files, before=before)
        found = tokens_recount(engine=engine, window=OCTOBER, zone="Asia/Shanghai", close_seq=1)
        assert (found.holds, found.records) == (before == 1, records)


def test_usage_that_is_not_what_its_close_saw_is_not_sealed(october: None, tmp_path: Path) -> None:
    rewrite("UPDATE usage_allocationrevision SET until = until - interval '1 second'")
    with pytest.raises(SealError, match=r"2026-10: gpu are not what close 1 billed"):
        sealed(tmp_path / "archive")
    assert seals() == []


def test_records_that_are_not_what_the_roll_ups_say_are_not_sealed(october: None, tmp_path: Path) -> None:
    rewrite("UPDATE token_entry SET input_tokens = 1001 WHERE id = 'req-3'")
    difference = "tokens of litellm-hq on 2026-10-15: 1 1000 200 0 40000 0 in the ledger, 1 1001 200 0 40000 0 in the arch"
    with pytest.raises(SealError, match=difference):
        sealed(tmp_path / "archive")
    assert not list((tmp_path / "archive").rglob("manifest.json"))
    assert seals() == []


def test_what_comes_back_changed_is_not_sealed(october: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that gives back other bytes than it took."""

    class Forgetful(sealing.Archive):
        address = "x://"

        def put(self, name: str, file: Path) -> None:
            self.kept = file.read_bytes()

        def chunks(self, name: str) -> Iterator[bytes]:
            yield self.kept

        def local(self, name: str, scratch: Path) -> Path:
            path = scratch / "back.parquet"
            path.write_bytes(self.kept[:-1] + b"?")
            return path

    monkeypatch.setattr(sealing, "archive_at", lambda _: Forgetful())
    with pytest.raises(ArchiveError, match="its manifest says"):
        sealed("x://")
    assert seals() == []


def test_a_file_in_an_archive_is_never_replaced(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("1")
    archive = archive_at(str(tmp_path / "archive"))
    archive.put("a/x", file)
    with pytest.raises(ArchiveError, match="already exists"):
        archive.put("a/x", file)


@pytest.mark.parametrize(
    ("address", "printed"),
    [
        ("ftp://host/x", "write a path"), ("s3://key:secret@bucket/x", "credentials are no part"),
        ("s3://bucket/x?secret=1", "not secret"), ("s3://bucket?endpoint=https://a:b@host", "credentials are no part"),
    ],
)  # fmt: skip
def test_an_address_that_names_no_archive_is_refused_in_one_line(
    october: None, capsys: pytest.CaptureFixture[str], address: str, printed: str
) -> None:
    person("lin", "finance")
    assert printed in Manage(capsys)("usage_seal", "2026-10", "--out", address, "--by", "lin").error


def test_the_command_needs_a_closed_month_and_an_account_that_may(
    october: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    person("lin", "finance")
    person("kim", "auditor")
    seal = partial(Manage(capsys), "usage_seal", "--out", tmp_path / "a")
    assert "takes an account with the right" in seal("2026-10", "--by", "kim").error
    assert "is not closed" in seal("2026-11", "--by", "lin").error
    document = json.loads(seal("2026-10", "--by", "lin", "--json").out)
    assert (document["period"], document["made"], document["before"]) == ("2026-10", True, 1)
    assert "(was sealed already)" in seal("2026-10", "--by", "lin").out


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A bucket of a server of its own, which speaks S3."""
    for name, value in (("AWS_ACCESS_KEY_ID", "tests"), ("AWS_SECRET_ACCESS_KEY", "tests")):
        monkeypatch.setenv(name, value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1").create_bucket(Bucket="sealed")
    yield f"s3://sealed/months?endpoint={endpoint}&region=us-east-1"
    server.stop()


def test_a_month_is_sealed_recounted_and_verified_in_an_object_store(
    october: None, bucket: str, capsys: pytest.CaptureFixture[str]
) -> None:
    seal = sealed(bucket)
    assert faults(seal) == []
    for command in of_page(SCALE, "python manage.py usage_seal --verify"):
        call_command(*words(filled(command, {"s3://bucket/prefix": bucket} if "s3:" in command else {}))[2:])
    assert capsys.readouterr().out.endswith("0 lines differ from what was billed\n")
    endpoint = bucket.split("endpoint=")[1].split("&")[0]
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    key = f"months/{seal.folder}/samples-00000.parquet"
    octets = bytearray(client.get_object(Bucket="sealed", Key=key)["Body"].read())
    octets[20] ^= 4
    client.put_object(Bucket="sealed", Key=key, Body=bytes(octets))
    (fault,) = faults(seal)
    assert fault.startswith(f"{seal.folder}/samples-00000.parquet: has SHA-256")
    client.delete_object(Bucket="sealed", Key=key)
    (fault,) = faults(seal)
    assert "NoSuchKey" in fault
