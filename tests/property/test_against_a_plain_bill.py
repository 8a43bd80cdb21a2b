"""Random months from files to invoices, against a bill that loops over the rows with fractions and knows nothing else.

What a month costs is said here a second time, as a reader of the contract would compute it by hand: no SQL, no roll-ups,
no code of the product but the commands.
"""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from io import StringIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.factories import cluster_reported
from tests.hypothesis_profile import examples

pytestmark = pytest.mark.django_db

SHANGHAI = timezone(timedelta(hours=8))
START, END = datetime(2026, 10, 1, tzinfo=SHANGHAI), datetime(2026, 11, 1, tzinfo=SHANGHAI)
EVER = "2026-01-01"
Row = dict[str, Any]
Bill = dict[tuple[str, ...], str]
"""The amount of each line: (team, kind, namespace or consumer, SKU, token class or verdict, price list)."""

moments = st.integers(-86_400, 32 * 86_400).map(lambda seconds: START + timedelta(seconds=seconds))
inside = st.integers(1, 31 * 86_400 - 1).map(lambda seconds: START + timedelta(seconds=seconds))
hours = st.integers(1, 31 * 24 - 1).map(lambda hour: START + timedelta(hours=hour))
prices = st.integers(1, 10**7).map(lambda value: Fraction(value, 10**4))
namespaces = st.sampled_from(["alpha", "alpha-train", "alpha-train-7", "beta", "beta-x", "serving"])
accelerators = st.sampled_from(["NVIDIA-H800", "Ascend910B", "NVIDIA-L40S"])
keys = st.sampled_from(["key-a", "key-b"])
models = st.sampled_from(["llama-3-8b", "qwen-3-32b"])
CLASSES = ("input", "cache_read", "cache_creation", "output")
MIG = "nvidia.com/mig-1g.10gb"
BANDS: Row = {
    "hfu_below": "0.20", "penalty": "0.20", "mfu_above": "0.50", "reward": "0.10", "min_minutes": 30, "min_coverage": "0.95",
}  # fmt: skip


def decimal(value: Fraction, places: int) -> str:
    """A fraction with so many decimals, halves away from zero; what prices and invoices write."""
    scaled = abs(value) * 10**places
    whole = int(scaled) + (scaled - int(scaled) >= Fraction(1, 2))
    sign = "-" if value < 0 and whole else ""
    return f"{sign}{whole // 10**places}.{whole % 10**places:0{places}d}"


@st.composite
def price_lists(draw: st.DrawFn) -> list[Row]:
    """Complete lists, the first since ever."""
    starts = [START - timedelta(days=200), *sorted(draw(st.lists(st.one_of(inside, hours), max_size=2, unique=True)))]
    return [
        {
            "name": f"list-{number}", "from": at,
            "gpu": {name: draw(prices) for name in ("NVIDIA-H800", "Ascend910B", "NVIDIA-L40S", MIG)},
            "tokens": {(model, name): draw(prices) for model in ("llama-3-8b", "qwen-3-32b") for name in CLASSES},
        }
        for number, at in enumerate(starts)
    ]  # fmt: skip


@st.composite
def owners(draw: st.DrawFn) -> dict[str, list[tuple[datetime, str]]]:
    """Who owns each pattern and key since when; teams change hands at any second."""
    found = {}
    for name, first in (("alpha*", "red"), ("alpha-train*", "green"), ("alpha-train-7", "blue"), ("beta*", "blue"),
                        ("key-a", "red"), ("key-b", "green")):  # fmt: skip
        changes = sorted(draw(st.lists(hours if name.startswith("key") else inside, max_size=1)))
        found[name] = [(START - timedelta(days=200), first), *((at, "gold") for at in changes)]
    return found


@st.composite
def hold(draw: st.DrawFn, number: int) -> Row:
    began, ended = sorted([draw(moments), draw(moments)])
    sliced = draw(st.booleans())
    accelerator = "NVIDIA-H800" if sliced else draw(accelerators)
    return {
        "cluster": "hq-1", "namespace": draw(namespaces), "pod": f"pod-{number}", "pod_uid": f"uid-{number}",
        "resource": MIG if sliced else "nvidia.com/gpu", "quantity": draw(st.integers(1, 64)),
        "device_fraction": "1" if sliced else draw(st.sampled_from(["1", "0.5", "0.142857142857"])),
        "accelerator": accelerator, "node": "", "queue": "", "workload": "", "started_at": began, "ended_at": ended,
    }  # fmt: skip


@st.composite
def request(draw: st.DrawFn, number: int) -> Row:
    fresh, read, created = (draw(st.integers(0, 10 ** draw(st.sampled_from([2, 5, 8])))) for _ in range(3))
    output = draw(st.integers(0, 10**6))
    return {
        "source": "gateway", "id": f"request-{number}", "time": draw(moments), "consumer": draw(keys),
        "model": draw(models), "input_tokens": fresh + read + created, "cache_read_input_tokens": read,
        "cache_creation_input_tokens": created, "output_tokens": output,
        "reasoning_output_tokens": draw(st.integers(0, output)),
    }  # fmt: skip


@st.composite
def score(draw: st.DrawFn, of: Row) -> Row:
    """One sample over a whole hold."""
    seconds = (of["ended_at"] - of["started_at"]) // timedelta(seconds=1)
    mfu = Fraction(draw(st.integers(0, 80)), 100)
    return {
        "cluster": of["cluster"], "pod_uid": of["pod_uid"], "start": of["started_at"], "end": of["ended_at"],
        "gpu_seconds": Fraction(of["device_fraction"]) * of["quantity"] * seconds, "mfu": mfu,
        "hfu": mfu + Fraction(draw(st.integers(0, 20)), 100), "dtype": "bf16",
        "coverage": draw(st.sampled_from(["1", "0.97", "0.95", "0.94"])),
    }  # fmt: skip


def owner_of(name: str, at: datetime, owned: dict[str, list[tuple[datetime, str]]]) -> str:
    """The longest pattern that fits, as it was at that moment."""
    fits = [pattern for pattern in owned if pattern == name or (pattern[-1] == "*" and name.startswith(pattern[:-1]))]
    return [team for since, team in owned[max(fits, key=len)] if since <= at][-1]


def gpu_pieces(row: Row, lists: list[Row], owned: dict[str, Any]) -> Iterator[tuple[str, Row, Fraction]]:
    """The part of a hold within the month, by owner and price list: (team, list, device-hours)."""
    changes = {at for dates in owned.values() for at, _ in dates} | {one["from"] for one in lists}
    bounds = {START, END, row["started_at"], row["ended_at"], *changes}
    begin, end = max(START, row["started_at"]), min(END, row["ended_at"])
    for lo, hi in pairwise(sorted(at for at in bounds if begin <= at <= end)):
        seconds = Fraction((hi - lo) // timedelta(microseconds=1), 10**6)
        team = "platform" if row["namespace"] == "serving" else owner_of(row["namespace"], lo, owned)
        held = seconds * row["quantity"] * Fraction(row["device_fraction"]) / 3600
        yield team, [one for one in lists if one["from"] <= lo][-1], held


def judged(sample: Row, row: Row) -> str:
    """What the policy says of a job with this one sample, in this month."""
    minutes = (min(END, row["ended_at"]) - max(START, row["started_at"])) / timedelta(minutes=1)
    device_hours = Fraction(minutes) / 60 * row["quantity"] * Fraction(row["device_fraction"])
    if minutes < BANDS["min_minutes"] or device_hours < 1 or Fraction(sample["coverage"]) < Fraction(BANDS["min_coverage"]):
        return "neutral"
    if sample["hfu"] < Fraction(BANDS["hfu_below"]):
        return "penalty"
    return "reward" if sample["mfu"] > Fraction(BANDS["mfu_above"]) else "neutral"


def plain_bill(
    lists: list[Row], owned: dict[str, Any], holds: Iterable[Row], requests: Iterable[Row], samples: dict[str, Row]
) -> Bill:
    """What every team's invoice says: {team: {line: amount}}."""
    sums: dict[tuple[str, ...], Fraction] = defaultdict(Fraction)
    price: dict[tuple[str, ...], Fraction] = {}
    for row in holds:
        sku = row["resource"] if row["resource"] == MIG else row["accelerator"]
        word = judged(samples[row["pod_uid"]], row) if row["pod_uid"] in samples else "neutral"
        for team, one, held in gpu_pieces(row, lists, owned):
            line = (team, "gpu", row["namespace"], sku, "", one["name"])
            sums[line] += held
            price[line] = one["gpu"][sku]
            if word != "neutral":
                line = (team, "efficiency", row["namespace"], sku, word, one["name"])
                change = {"penalty": Fraction("0.20"), "reward": Fraction("-0.10")}[word]
                sums[line] += held
                price[line] = one["gpu"][sku] * change
    for row in requests:
        if START <= row["time"] < END:
            one = [one for one in lists if one["from"] <= row["time"]][-1]
            read, created = row["cache_read_input_tokens"], row["cache_creation_input_tokens"]
            counts = (row["input_tokens"] - read - created, read, created, row["output_tokens"])
            team = owner_of(row["consumer"], row["time"], owned)
            for name, count in zip(CLASSES, counts, strict=True):
                line = (team, "tokens", row["consumer"], row["model"], name, one["name"])
                sums[line] += Fraction(count, 10**6)
                price[line] = one["tokens"][row["model"], name]
    return {
        line: decimal(quantity * price[line], 2)
        for line, quantity in sums.items()
        if quantity and line[0] != "platform"
    }


def set_up(lists: list[Row], owned: dict[str, Any]) -> dict[str, Any]:
    """The same world as a set-up file."""
    teams = ["red", "green", "blue", "gold"]
    return {
        "billing": {"currency": "CNY", "zone": "Asia/Shanghai", "issuer": "PLAIN", "review": "none"},
        "teams": [{"code": code, "name": code, "cost_center": code} for code in teams],
        "ownership": [
            {"cluster": "hq-1", "namespace": name, "team": team, "valid_from": since.isoformat()}
            for name, dates in owned.items() if not name.startswith("key") for since, team in dates
        ],
        "consumers": [
            {"source": "gateway", "consumer": name, "team": team, "valid_from": since.isoformat()}
            for name, dates in owned.items() if name.startswith("key") for since, team in dates
        ],
        "platform": [{"cluster": "hq-1", "namespace": "serving", "team": "platform"}],
        "price_versions": [
            {
                "name": one["name"], "valid_from": one["from"].isoformat(),
                "gpu": [
                    {"resource": name, "price_per_slice_hour": decimal(value, 4)} if name == MIG
                    else {"accelerator": name, "price_per_gpu_hour": decimal(value, 4)}
                    for name, value in one["gpu"].items()
                ],
                "tokens": [
                    {"model": model, **{name: decimal(one["tokens"][model, name], 4) for name in CLASSES}}
                    for model in ("llama-3-8b", "qwen-3-32b")
                ],
            }
            for one in lists
        ],
        "efficiency_policies": [{"name": "bands", "valid_from": EVER, **BANDS}],
    }  # fmt: skip


def written(value: object) -> str:
    """A cell of a file."""
    if isinstance(value, datetime):
        return value.isoformat()
    return decimal(value, 12) if isinstance(value, Fraction) else str(value)


def import_rows(directory: Path, kind: str, rows: list[Row]) -> None:
    if rows:
        path = directory / f"{kind}.csv"
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows({name: written(value) for name, value in row.items()} for row in rows)
        command("import_usage", kind, str(path))


def command(*arguments: str) -> str:
    """What a command prints; one that finds something to decide fails here."""
    out = StringIO()
    with redirect_stdout(out):
        call_command(*arguments, stdout=out)
    return out.getvalue()


def invoiced() -> Bill:
    """Close and issue; the invoices in the shape of the plain bill."""
    command("period_close", "2026-10")
    printed = json.loads(command("invoice_issue", "2026-10", "--json"))
    found: Bill = {}
    for invoice in printed["invoices"]:
        lines = {}
        for line in invoice["lines"]:
            which = line["namespace"] or line["consumer"]
            fourth = line["reason"] if line["kind"] == "efficiency" else line["token_class"] or ""
            lines[line["kind"], which, line["sku"], fourth, line["price_version"]] = line["amount"]
        assert len(lines) == len(invoice["lines"])
        assert Fraction(invoice["total"]) == sum(Fraction(amount) for amount in lines.values())
        found |= {(invoice["team"], *line): amount for line, amount in lines.items()}
    return found


@settings(
    max_examples=examples(40), deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)  # fmt: skip
@given(price_lists(), owners(), st.data())
def test_every_line_of_every_invoice_is_what_a_plain_loop_over_the_files_gives(
    tmp_path_factory: pytest.TempPathFactory, lists: list[Row], owned: dict[str, Any], data: st.DataObject
) -> None:
    holds = [data.draw(hold(number)) for number in range(data.draw(st.integers(0, 8)))]
    requests = [data.draw(request(number)) for number in range(data.draw(st.integers(0, 12)))]
    samples = {
        row["pod_uid"]: data.draw(score(row))
        for row in holds
        if row["ended_at"] > row["started_at"] and len(row["device_fraction"]) < 4 and data.draw(st.booleans())
    }
    directory = tmp_path_factory.mktemp("month")
    world = set_up(lists, owned)
    (directory / "set-up.yaml").write_text(yaml.safe_dump(world, sort_keys=False))
    with transaction.atomic():
        command("apply", str(directory / "set-up.yaml"))
        cluster_reported("hq-1")  # a month may have no hold at all
        import_rows(directory, "gpu", holds)
        import_rows(directory, "tokens", requests)
        import_rows(directory, "efficiency", list(samples.values()))
        found = invoiced()
        transaction.set_rollback(True)
    expected = plain_bill(lists, owned, holds, requests, samples)
    wrong = {line: (found.get(line), expected.get(line)) for line in found.keys() | expected.keys()}
    assert {line: amounts for line, amounts in wrong.items() if amounts[0] != amounts[1]} == {}
