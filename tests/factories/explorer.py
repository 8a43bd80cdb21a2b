"""A small October as the explorer answers about it."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from django.http import QueryDict

from billing.explorer.models import MonthCube
from billing.explorer.query import Query, query_of
from billing.explorer.results import Group
from billing.explorer.selectors import Explored, Explorer
from billing.invoices.models import Invoice
from tests.factories import apply, ingest_allocations, ingest_tokens, token_record
from tests.factories.corrections import bill, credit, part, people, whole
from tests.factories.usage import hold

ZONE = "Asia/Shanghai"
TODAY = date(2026, 11, 3)
NOW = datetime(2026, 11, 3, 4, tzinfo=UTC)
IN_DECEMBER = datetime(2026, 12, 3, 4, tzinfo=UTC)


@pytest.fixture(scope="module")
def used(for_all_tests: Path) -> None:
    """Made once for the tests of a module that follow the first one that asks for it.

    Of nlp one job of 1 h before and 1.5 h after a local midnight, one of 20 minutes the next day, and tokens; cv has 2 h.

    2.833333 h at 10.00 are 28.33 on one line: 10.00 and 18.33 by day, the second day 15.00 and 3.33 by job.
    """
    apply(for_all_tests)
    ingest_allocations(
        hold(1, "2026-10-10T15:00:00Z", "2026-10-10T17:30:00Z", quantity=1, queue="gold", priority_class="high",
             pool="spot", workload={"kind": "PyTorchJob", "name": "pretrain"}),
        hold(2, "2026-10-11T02:00:00Z", "2026-10-11T02:20:00Z", quantity=1, workload={"kind": "Job", "name": "eval"}),
        hold(3, "2026-10-11T02:00:00Z", "2026-10-11T04:00:00Z", quantity=1, namespace="cv"),
    )  # fmt: skip
    ingest_tokens(token_record(input_tokens=1_400_000, cache_read_input_tokens=0, output_tokens=1_000_000))


@pytest.fixture
def credited(used: None, db: None) -> None:
    """October is issued; on 12 November 8.33 of nlp's GPU line are credited, and all 20.00 of cv's, rebilled at 9.50."""
    people()
    bill()
    numbers = dict(Invoice.objects.values_list("team__code", "number"))
    credit(part("8.33"), number=numbers["nlp"])
    credit(whole(rebill_price=Decimal("9.5")), number=numbers["cv"])


def asked(text: str) -> Query:
    return query_of(QueryDict(text), TODAY, 1)


def explored(text: str, *teams: str, now: datetime = NOW) -> Explored:
    MonthCube.objects.all().delete()
    return Explorer(frozenset(teams or ("nlp", "cv")), now, ZONE).explore(asked(text))


def bars(group: Group, found: Explored) -> dict[str, Decimal]:
    return {step.name: bar for step, bar in zip(found.steps, group.bars, strict=True) if bar}


def totals(found: Explored) -> dict[tuple[str, ...], Decimal]:
    return {group.names: group.total for group in found.groups}
