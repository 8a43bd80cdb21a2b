"""Every grouping of the explorer, by every step: its figures are those of invoices and notes, of the API and of FOCUS."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from billing.explorer.models import MonthCube
from billing.explorer.query import DIMENSIONS, NAMELESS, STEPS
from billing.explorer.selectors import Explored, Explorer
from billing.exports.services.focus_rows import focus_rows
from billing.invoices.models import Invoice, InvoiceLine, NoteLine
from billing.invoices.selectors import period_of
from billing.portal.statements import month_statements
from billing.tenancy.models import Team
from pricing.rating import LineKey
from tests.factories import SET_UP, apply, ingest_allocations, ingest_capacity, ingest_tokens, person, token_record
from tests.factories.corrections import bill, credit, part, whole
from tests.factories.histories import BANDS, examples, measured
from tests.factories.usage import capacity, hold

pytestmark = pytest.mark.django_db
ZONE, MONTHS = "Asia/Shanghai", ("2026-10", "2026-11")
CLOSED, NOTED = datetime(2026, 11, 1, 0, 5, tzinfo=UTC), datetime(2026, 11, 9, 6, tzinfo=UTC)
OVER, NOW = datetime(2026, 12, 1, 0, 5, tzinfo=UTC), datetime(2026, 12, 3, 4, tzinfo=UTC)
TEAMS = ("nlp", "cv")
GROUPINGS = [(), *((one,) for one in DIMENSIONS), *combinations(DIMENSIONS, 2)]
OF_LINES = ("team", "namespace", "consumer", "model", "accelerator", "cluster", "kind")
Names = tuple[str, ...]
Amounts = dict[Names, Decimal]


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An October of everything that is billed: a dearer price within it, judged and interrupted jobs, a commitment, idle
    time and tokens. It is 3 December.
    """
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    first = SET_UP["price_versions"][0]
    dearer = [{**entry, **{name: "12.3457" for name in entry if name.startswith("price_per")}} for entry in first["gpu"]]
    apply(
        tmp_path, price_versions=[first, {"name": "later", "valid_from": "2026-10-16T01:23:45Z", "gpu": dearer,
                                          "tokens": first["tokens"]}],
        efficiency_policies=[{**BANDS, "name": "first", "valid_from": "2026-10-01"}],
        interruption_policies=[{"name": "sla", "valid_from": "2026-10-01", "preempted": "platform"}],
        allocation_policies=[{"name": "idle", "valid_from": "2026-10-01", "idle": [{
            "cluster": "hq-1", "accelerator": "NVIDIA-H800", "price_per_gpu_hour": "6.0000", "method": "proportional"}]}],
        consumers=[*SET_UP["consumers"], {**SET_UP["consumers"][0], "consumer": "cv-key-1", "team": "cv"}],
        commitments=[{"name": "cv-2026", "team": "cv", "accelerator": "NVIDIA-H800", "price_per_gpu_hour": "8.0000",
                      "gpu_hours_per_month": "7", "valid_from": "2026-10-01"}],
    )  # fmt: skip
    held = [
        hold(1, "2026-10-10T15:20:00Z", "2026-10-11T17:30:11Z", quantity=3, queue="gold", priority_class="high", pool="spot",
             site="north", workload={"kind": "PyTorchJob", "name": "pretrain"}),
        hold(2, "2026-10-11T02:00:00Z", "2026-10-11T02:20:01Z", quantity=1, workload={"kind": "Job", "name": "eval"},
             end_reason="preempted"),
        hold(3, "2026-10-11T02:00:00Z", "2026-10-11T14:07:00Z", quantity=1, namespace="cv", queue="gold"),
        hold(4, "2026-10-16T00:00:00Z", "2026-10-16T03:33:33Z", quantity=7, device_fraction="0.142857142857",
             workload={"kind": "PyTorchJob", "name": "pretrain"}),
    ]  # fmt: skip
    ingest_allocations(*held, now=CLOSED)
    measured(held[0], "0.10")
    ingest_capacity(cluster="hq-1", node="n1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=10,
                    **{"from": "2026-10-10T15:00:00Z", "until": "2026-10-11T20:00:00Z"})  # fmt: skip
    capacity(units=10, hours=4, day=16)
    ingest_tokens(
        token_record(1, input_tokens=1_400_003, output_tokens=1_000_007),
        token_record(2, time="2026-10-16T05:06:07Z", consumer="cv-key-1", input_tokens=777_777, output_tokens=3,
                     reasoning_output_tokens=0),
        now=CLOSED,
    )  # fmt: skip


@pytest.fixture
def closed(used: None) -> None:
    """Both months closed and issued; in November a credit of 8.33, and a line of cv rebilled at 9.50."""
    bill("2026-10", CLOSED)
    ingest_allocations(
        hold(9, "2026-10-20T00:00:00Z", "2026-10-20T01:00:10Z", quantity=2),
        hold(10, "2026-11-02T00:00:00Z", "2026-11-03T01:30:00Z", quantity=1, namespace="cv"), now=NOTED,
    )  # fmt: skip
    ingest_capacity(cluster="hq-1", node="n1", accelerator="NVIDIA-H800", resource="nvidia.com/gpu", quantity=1,
                    **{"from": "2026-11-02T00:00:00Z", "until": "2026-11-03T01:30:00Z"})  # fmt: skip
    person("sam", "finance")
    person("fin", "approver")
    numbers = dict(Invoice.objects.values_list("team__code", "number"))
    credit(part("8.33"), number=numbers["nlp"])
    line = InvoiceLine.objects.filter(invoice__number=numbers["cv"], kind="commitment").first()
    credit(whole(line.position if line else 1, rebill_price=Decimal("7.5")), number=numbers["cv"])
    bill("2026-11", OVER)


def asked(by: Names, step: str, month: str) -> str:
    return "&".join([f"month={month}", f"step={step}", "column=none", *(f"by={name}" for name in by or ("none",))])


def shown(found: Explored) -> Amounts:
    return {group.names: group.total for group in found.groups if group.total}


def added(parts: Iterable[tuple[Names, Decimal]]) -> Amounts:
    sums: Amounts = defaultdict(Decimal)
    for names, amount in parts:
        sums[names] += amount
    return {names: amount for names, amount in sums.items() if amount}


def named(key: LineKey, by: Names, kind: str = "") -> Names:
    facts = {"kind": kind or ("late" if key.correction else key.kind), "accelerator": key.device, "model": key.model}
    return tuple(facts[name] if name in facts else getattr(key, name) for name in by)


def documented(month: str) -> list[tuple[str, int, LineKey, str, Decimal]]:
    """The lines of the invoices and notes of a month: document, position, key, kind if not that of the key, amount."""
    found: list[tuple[str, int, LineKey, str, Decimal]] = []
    for row in InvoiceLine.objects.filter(invoice__period__month=month).select_related("invoice__team"):
        key = LineKey.of(row, team=row.invoice.team.code, platform=False)
        found.append((str(row.invoice.number), row.position, key, "", row.amount))
    for line in NoteLine.objects.filter(note__correction__period__month=month).select_related("note__team"):
        key = LineKey.of(line, team=line.note.team.code, platform=False, correction=False)
        found.append((str(line.note.number), line.position, key, "note", line.amount))
    return found


def explored(by: Names, month: str) -> Explored:
    explorer = Explorer(frozenset(TEAMS), NOW, ZONE)
    return explorer.explore(explorer.asked(QueryDict(asked(by, "month", month))))


def test_before_the_close_every_grouping_is_what_would_be_invoiced(used: None) -> None:
    lines = [line for one in month_statements(period_of("2026-10"), Team.objects.all()).charged for line in one.lines]
    kinds = {line.key.kind for line in lines}
    assert kinds == {"gpu", "commitment", "tokens", "efficiency", "interruption", "idle"}
    for by in (one for one in GROUPINGS if set(one) <= set(OF_LINES)):
        assert shown(explored(by, "2026-10")) == added((named(line.key, by), line.amount) for line in lines), by


@pytest.mark.parametrize("month", MONTHS)
def test_after_the_close_every_grouping_is_the_billed_cost_of_the_focus_rows(closed: None, month: str) -> None:
    """A row of FOCUS names its line, and the line what it is grouped by."""
    MonthCube.objects.all().delete()
    lines = {f"{number}-{position:04d}": (key, kind) for number, position, key, kind, _ in documented(month)}
    rows = focus_rows(month=month, data_set="cost-and-usage", now=NOW, request=str)
    billed = added(((row["InvoiceDetailId"],), Decimal(row["BilledCost"])) for row in rows[0 : len(rows)])
    for by in (one for one in GROUPINGS if set(one) <= set(OF_LINES)):
        expected = added((named(lines[name][0], by, lines[name][1]), cost) for (name,), cost in billed.items())
        assert shown(explored(by, month)) == expected, by


@dataclass(frozen=True)
class Drawn:
    """A question: groups, filters, days and step, and who asks."""

    by: Names
    filters: tuple[tuple[str, tuple[str, ...]], ...]
    first: date
    last: date
    step: str
    teams: frozenset[str]

    def answered(self, **other: Any) -> Explored:
        """What it comes to, or what it would with other parts."""
        drawn = replace(self, **other)
        facts = [("from", f"{drawn.first}"), ("to", f"{drawn.last}"), ("step", drawn.step), ("column", "none")]
        facts += [("by", name) for name in drawn.by or ("none",)]
        facts += [(name, value or NAMELESS) for name, values in drawn.filters for value in values]
        explorer = Explorer(drawn.teams, NOW, ZONE)
        return explorer.explore(explorer.asked(QueryDict(urlencode(facts))), everything=True)


@st.composite
def questions(draw: st.DrawFn, names: dict[str, list[str]]) -> Drawn:
    """Of October and November: names that occur are asked for, in up to two dimensions."""
    by = tuple(draw(st.lists(st.sampled_from(DIMENSIONS), max_size=2, unique=True)))
    filtered = draw(st.lists(st.sampled_from(DIMENSIONS), max_size=2, unique=True))
    filters = [(name, tuple(draw(st.lists(st.sampled_from(names[name]), min_size=1, max_size=2, unique=True))))
               for name in filtered]  # fmt: skip
    first = date(2026, 10, 1) + timedelta(days=draw(st.one_of(st.sampled_from([0, 9, 10, 31]), st.integers(0, 60))))
    step = draw(st.sampled_from(STEPS))
    longest = 30 if step == "hour" else 60
    last = first + timedelta(days=draw(st.one_of(st.sampled_from([0, 29, 30]), st.integers(0, longest))))
    teams = draw(st.sampled_from([frozenset(TEAMS), frozenset({"nlp"}), frozenset({"cv"})]))
    return Drawn(by, tuple(filters), first, last, step, teams)


def bars_of(found: Explored) -> Amounts:
    """Each bar by its group and its first day or hour."""
    return added(
        ((*one.names, f"{step.start or max(step.span.first, found.query.first)}"), bar)
        for one in found.groups for step, bar in zip(found.steps, one.bars, strict=True)
    )  # fmt: skip


def joined(*amounts: Amounts) -> Amounts:
    return added(pair for one in amounts for pair in one.items())


def test_any_question_is_the_sum_of_its_parts_however_it_is_cut(closed: None) -> None:
    """By the names of another dimension, at a day, by team, by finer bars; and of the lines of documents what is theirs."""
    MonthCube.objects.all().delete()
    whole = Drawn((), (), date(2026, 10, 1), date(2026, 11, 30), "month", frozenset(TEAMS))
    names = {name: sorted(one.names[0] for one in whole.answered(by=(name,)).groups) for name in DIMENSIONS}
    lines = [line for month in MONTHS for line in documented(month)]

    @examples(15)
    @given(questions(names), st.data())
    def holds(asked: Drawn, data: st.DataObject) -> None:
        found = asked.answered()
        amounts = shown(found)
        assert sum(amounts.values(), Decimal(0)) == found.total.total
        assert {one.names: sum(one.bars, Decimal(0)) for one in found.groups if one.total} == amounts

        day = data.draw(st.integers(0, (asked.last - asked.first).days)) if asked.first < asked.last else 0
        cut = asked.first + timedelta(days=day)
        parts = [asked.answered(last=cut), *([asked.answered(first=cut + timedelta(days=1))] if cut < asked.last else [])]
        assert joined(*(shown(one) for one in parts)) == amounts
        if asked.step in ("hour", "day"):
            assert joined(*(bars_of(one) for one in parts)) == bars_of(found)
        assert joined(*(shown(asked.answered(teams=frozenset({team}))) for team in asked.teams)) == amounts
        assert shown(asked.answered(step="day")) == amounts

        free = [name for name in DIMENSIONS if name not in dict(asked.filters)]
        other = data.draw(st.sampled_from(free))
        only = [(name, asked.answered(filters=(*asked.filters, (other, (name,))), step="month")) for name in names[other]]
        assert joined(*(shown(one) for _, one in only)) == amounts
        if len(asked.by) < 2 and other not in asked.by:
            apart = asked.answered(by=(*asked.by, other), step="month")
            assert added(((*one.names, name), one.total) for name, answer in only for one in answer.groups) == shown(apart)

        if {*asked.by, *dict(asked.filters)} <= set(OF_LINES):
            of_lines = (*asked.by, *dict(asked.filters))
            months = asked.answered(first=whole.first, last=whole.last, step="month", by=asked.by)
            kept = (
                (named(key, of_lines, kind), amount) for _, _, key, kind, amount in lines if key.team in asked.teams
            )  # fmt: skip
            wanted = [values for _, values in asked.filters]
            assert shown(months) == added(
                (one[: len(asked.by)], amount) for one, amount in kept
                if all(name in values for name, values in zip(one[len(asked.by) :], wanted, strict=True))
            )  # fmt: skip

    holds()
