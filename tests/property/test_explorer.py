"""Whatever happened in a month: every grouping, filter and range of the explorer is the lines of the month, to the cent."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from billing.budgets.spending import month_lines as spent_in_month
from billing.closing.services.closing import period_close
from billing.explorer.models import MonthCube
from billing.explorer.query import DIMENSIONS, STEPS, Span, query_of
from billing.explorer.selectors import Explored, Explorer
from billing.invoices.models import BillingPeriod
from billing.invoices.selectors import period_of
from billing.portal.drilldown import days_allocated, days_of_tokens, scope_of
from billing.portal.statements import StatementLine, month_statements
from billing.tenancy.models import Team
from tests.factories import apply, ingest_allocations, ingest_tokens
from tests.factories.histories import OVER, allocations, examples, measured, set_ups, tokens, world

pytestmark = pytest.mark.django_db
ZONE, TODAY = "Asia/Shanghai", date(2026, 11, 5)
NOW = datetime(2026, 11, 5, 4, tzinfo=UTC)
EVERYBODY = frozenset({"nlp", "cv"})
OF_LINES = ("team", "namespace", "consumer", "model", "accelerator", "cluster", "kind")
Amounts = dict[tuple[str, ...], Decimal]


def explored(teams: frozenset[str], text: str) -> Explored:
    return Explorer(teams, NOW, ZONE).explore(query_of(QueryDict(text), TODAY, 1), everything=True)


def named(line: StatementLine, dimension: str) -> str:
    key = line.key
    of_line = {"kind": "late" if key.correction else key.kind, "accelerator": key.device}
    found: str = of_line[dimension] if dimension in of_line else getattr(key, dimension)
    return found


def added(lines: Iterable[StatementLine], by: tuple[str, ...]) -> Amounts:
    sums: Amounts = defaultdict(Decimal)
    for line in lines:
        sums[tuple(named(line, name) for name in by)] += line.amount
    return {names: amount for names, amount in sums.items() if amount}


def shown(found: Explored) -> Amounts:
    return {group.names: group.total for group in found.groups if group.total}


def bars_by_day(found: Explored) -> Amounts:
    sums: Amounts = defaultdict(Decimal)
    for group in found.groups:
        for step, bar in zip(found.steps, group.bars, strict=True):
            sums[*group.names, str(step.span.first)] += bar
    return {names: amount for names, amount in sums.items() if amount}


def lines_of(month: str, teams: frozenset[str]) -> list[StatementLine]:
    found = month_statements(period_of(month), Team.objects.filter(code__in=teams))
    return [line for statement in found.charged for line in statement.lines]


def by_day(month: str, teams: frozenset[str]) -> dict[date, Decimal]:
    """What the page of each line says of its days, of lines that charge usage on demand."""
    period, sums = period_of(month), defaultdict[date, Decimal](Decimal)
    for line in lines_of(month, teams):
        if line.key.what.on_demand and not line.key.correction:
            scope = scope_of(line, period)
            parts = (days_of_tokens if line.key.counts_tokens else days_allocated)(line, scope).parts
            for part in parts:
                sums[part.facts["day"]] += part.amount
    return dict(sums)


@examples(12)
@given(set_ups(), allocations(), allocations(), tokens(), st.booleans(), st.data())
def test_every_question_is_answered_by_the_lines(
    tmp_path_factory: pytest.TempPathFactory, set_up: dict[str, Any], held: list[dict[str, Any]], late: list[dict[str, Any]],
    used: list[dict[str, Any]], closed: bool, data: st.DataObject,
) -> None:  # fmt: skip
    with world():
        apply(tmp_path_factory.mktemp("set-up"), **set_up)
        ingest_allocations(*held, now=OVER)
        ingest_tokens(*used)
        for record in held:
            measured(record, data.draw(st.sampled_from(["0.10", "0.30", "0.60"])))
        if closed:
            period_close(month="2026-10", actor="ops", now=OVER)
            names = [{"allocation_id": f"late-{number}", "pod_uid": f"late-{number}"} for number in range(len(late))]
            ingest_allocations(*(record | name for record, name in zip(late, names, strict=True)), now=NOW)
        assert BillingPeriod.objects.filter(status="closed").exists() is closed
        _compare(data)
        MonthCube.objects.all().delete()


def _compare(data: st.DataObject) -> None:
    teams = data.draw(st.sampled_from([EVERYBODY, frozenset({"nlp"}), frozenset({"cv"}), frozenset({"nobody"})]))
    by = tuple(data.draw(st.lists(st.sampled_from(OF_LINES), min_size=1, max_size=2, unique=True)))
    groups = "&".join(f"by={name}" for name in by)
    for month in ("2026-10", "2026-11"):
        lines = lines_of(month, teams)
        found = explored(teams, f"month={month}&{groups}")
        assert shown(found) == added(lines, by)
        assert found.total.total == sum((line.amount for line in lines), Decimal(0))
        assert found.total.total == sum(line.amount for line in spent_in_month(month, ZONE).lines if line.team in teams)
        some = data.draw(st.sampled_from(sorted({named(line, "namespace") for line in lines} - {""}) or ["none"]))
        kept = [line for line in lines if named(line, "namespace") == some]
        assert shown(explored(teams, f"month={month}&{groups}&namespace={some}")) == added(kept, by)
        pair = data.draw(st.lists(st.sampled_from(DIMENSIONS), min_size=1, max_size=2, unique=True))
        step = data.draw(st.sampled_from(STEPS))
        for asked in (*DIMENSIONS, "&by=".join(pair)):
            other = explored(teams, f"month={month}&step={step}&by={asked}")
            assert other.total.total == sum(shown(other).values(), Decimal(0)) == found.total.total
            assert [sum(group.bars, Decimal(0)) for group in other.groups] == [group.total for group in other.groups]
        days, hours = (explored(teams, f"month={month}&step={name}&by={pair[0]}") for name in ("day", "hour"))
        assert bars_by_day(days) == bars_by_day(hours)
    first = date(2026, 10, 1) + timedelta(days=data.draw(st.integers(0, 30)))
    span = Span(first, first + timedelta(days=data.draw(st.integers(0, 30))))
    days = {day: amount for day, amount in by_day("2026-10", teams).items() if span.first <= day <= span.last and amount}
    range_asked = f"from={span.first}&to={min(span.last, date(2026, 10, 31))}"
    found = explored(teams, f"{range_asked}&step=day&by=none&kind=gpu&kind=tokens")
    bars = found.charted[0].bars if found.charted else []
    assert {step.span.first: bar for step, bar in zip(found.steps, bars, strict=False) if bar} == days
