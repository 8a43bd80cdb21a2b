"""Whatever was published stays: no column of a price, its evidence or its approval changes, whoever writes it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.contrib.postgres.fields import ArrayField
from django.db import DatabaseError, connection, models, transaction

from billing.approvals.models import Step
from billing.rates.models import (
    CostSheet,
    EfficiencyPolicy,
    GpuPrice,
    PriceDraft,
    PriceVersion,
    TokenCostSheet,
    TokenPrice,
)
from billing.rates.services import (
    cost_sheet_put,
    price_draft_approve,
    price_draft_create,
    price_draft_submit,
    token_cost_sheet_put,
)
from billing.tenancy.models import AuditEntry
from pricing.tco import cost_of_gpu_hour, parse_cost_sheet
from tests.factories import apply
from tests.factories.prices import SHEET, TOKEN_SHEET
from tests.factories.usage import POLICY

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("published")]

NOW = datetime(2026, 11, 3, tzinfo=UTC)
DECEMBER = datetime(2026, 11, 30, 16, tzinfo=UTC)
TABLES = (PriceVersion, GpuPrice, TokenPrice, CostSheet, TokenCostSheet, EfficiencyPolicy, PriceDraft, Step)
REFUSED = "never change|stays|only grows|keeps|never emptied|never forgotten|ends only where"


@pytest.fixture(scope="module")
def published(for_all_tests: Path) -> None:
    """2026-12, made by ana from a cost sheet and a load test, approved by ben."""
    later = {**POLICY, "name": "bands-v2", "valid_from": "2026-12-01T00:00:00+08:00"}
    apply(for_all_tests, efficiency_policies=[POLICY, later])
    cost_sheet_put(name="h800", inputs=SHEET, result=cost_of_gpu_hour(parse_cost_sheet(SHEET)).as_dict(), actor="ana")
    token_cost_sheet_put(name="llama", inputs=TOKEN_SHEET, actor="ana")
    content = {
        "gpu": [{"accelerator": "NVIDIA-H800", "cost_sheet": "h800"}],
        "tokens": [{"model": "llama-3-8b", "cost_sheet": "llama"}],
    }
    draft = price_draft_create(name="2026-12", valid_from=DECEMBER, content=content, actor="ana", now=NOW, reason="power")
    price_draft_submit(draft=draft, actor="ana", now=NOW)
    price_draft_approve(draft=draft, actor="ben", now=NOW)
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE; SET CONSTRAINTS ALL DEFERRED")


def sql(statement: str) -> None:
    """Run it and what is checked at commit."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
        assert cursor.rowcount != 0, "the statement changed nothing, so it proves nothing"
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")


def other_value(field: Any) -> str:
    """SQL for another value of a column's type."""
    column = f'"{field.column}"'
    if isinstance(field, models.JSONField):
        return "'{\"changed\": true}'"
    if isinstance(field, ArrayField):
        return "'{changed}'"
    if isinstance(field, models.BooleanField):
        return f"NOT {column}"
    if isinstance(field, models.DateTimeField):
        return f"{column} - interval '1 hour'"
    if isinstance(field, models.CharField | models.TextField):
        return "'new'"
    if isinstance(field, models.ForeignKey | models.AutoField | models.IntegerField | models.DecimalField):
        return f"coalesce({column}, 0) + 1"
    raise TypeError(f"{field}: say how its column is changed")


def columns() -> Iterator[tuple[str, str]]:
    for model in TABLES:
        for field in model._meta.concrete_fields:
            yield model._meta.db_table, f'UPDATE {model._meta.db_table} SET "{field.column}" = {other_value(field)}'


@pytest.mark.parametrize("statement", [statement for _, statement in columns()])
def test_no_column_changes(statement: str) -> None:
    with pytest.raises(DatabaseError, match=REFUSED):
        sql(statement)


@pytest.mark.parametrize("table", [model._meta.db_table for model in TABLES])
@pytest.mark.parametrize("statement", ["DELETE FROM {}", "TRUNCATE {} CASCADE"])
def test_no_row_goes(table: str, statement: str) -> None:
    with pytest.raises(DatabaseError, match=REFUSED):
        sql(statement.format(table))


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO rates_gpuprice (version_id, accelerator, resource, unit, price)"
        " SELECT id, 'B200', '', 'GPU-Hours', 1 FROM rates_priceversion",
        "INSERT INTO rates_tokenprice (version_id, model, token_class, price)"
        " SELECT id, 'other', 'input', 1 FROM rates_priceversion",
        "UPDATE rates_gpuprice SET price = 1 WHERE version_id IN (SELECT id FROM rates_priceversion WHERE name = '2026-12')",
        "UPDATE rates_priceversion SET valid_until = '2026-12-24Z' WHERE name = '2026-12'",
        "UPDATE rates_efficiencypolicy SET valid_until = '2026-12-24Z' WHERE name = 'bands-v2'",
        "UPDATE rates_priceversion SET valid_until = NULL WHERE name = '2026-10'",
        "INSERT INTO approvals_proposal SELECT (jsonb_populate_record(draft, '{\"id\": 999, \"subject\": \"x\"}')).*"
        " FROM approvals_proposal draft",
    ],
)
def test_nothing_is_added_to_or_cut_off_what_was_published(statement: str) -> None:
    with pytest.raises(DatabaseError):
        sql(statement)


def test_a_version_ends_where_the_next_one_begins_and_the_change_is_in_the_audit_log() -> None:
    assert PriceVersion.objects.get(name="2026-10").valid_until == DECEMBER
    noted = AuditEntry.objects.get(action="row_update", subject="rates_priceversion 2026-10", detail__before={})
    assert noted.actor.startswith("database:")
    assert list(noted.detail["after"]) == ["valid_until"]


def test_a_sheet_that_no_published_price_uses_may_still_change() -> None:
    cost_sheet_put(name="b200", inputs=SHEET, result={}, actor="ana")
    _, changed = cost_sheet_put(name="b200", inputs={**SHEET, "markup": "0.3"}, result={}, actor="ana")
    assert changed
