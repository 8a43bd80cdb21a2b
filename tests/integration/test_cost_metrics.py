"""`/api/v1/metrics`: the figures of the API as samples, of the teams of the token, with how far they go."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from prometheus_client.parser import text_string_to_metric_families

from billing.budgets.services import budgets_evaluate, days_store, forecasts_update
from billing.explorer.models import MonthCube
from tests.factories import apply, ingest_allocations, ingest_tokens, token_record, watched
from tests.factories.api import problem, program
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 10, 20, 4, tzinfo=UTC)
BOTH = ("invoices:read", "budgets:read")
LABELS = ("month", "mode", "id", "team", "name", "period", "kind", "model", "accelerator", "what", "currency")
Samples = dict[str, dict[tuple[str, ...], float]]


@pytest.fixture(scope="module")
def october(for_all_tests: Path) -> None:
    """nlp: 2.5 GPU-hours at 10.00 and tokens for 10.80 (2.4 million); cv: 2 GPU-hours. A budget of nlp, 300.00."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.utils.timezone.now", lambda: NOW)
        apply(for_all_tests, budgets=[{"team": "nlp", "name": "all of nlp", "amount": "300.00", "thresholds": [80]}])
        ingest_allocations(
            hold(1, "2026-10-10T15:00:00Z", "2026-10-10T17:30:00Z", quantity=1),
            hold(3, "2026-10-11T02:00:00Z", "2026-10-11T04:00:00Z", quantity=1, namespace="cv"), now=NOW,
        )  # fmt: skip
        ingest_tokens(token_record(input_tokens=1_400_000, cache_read_input_tokens=0, output_tokens=1_000_000))
        watched(NOW)
        budgets_evaluate(now=NOW)
        days_store(now=NOW)
        forecasts_update(now=NOW)


@pytest.fixture(autouse=True)
def at_noon(october: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    MonthCube.objects.all().delete()


def samples(client: Client, query: str = "") -> Samples:
    answer = client.get(f"/api/v1/metrics{query}", headers={"Accept": "text/plain;version=0.0.4"})
    assert answer.status_code == 200, answer.content
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    found: Samples = {}
    for family in text_string_to_metric_families(answer.content.decode()):
        for sample in family.samples:
            names = tuple(sample.labels[name] for name in LABELS if name in sample.labels)
            found.setdefault(sample.name, {})[names] = sample.value
    return found


def explored(client: Client, *by: str, column: str = "none") -> list[dict[str, Any]]:
    query = "&".join(f"by={name}" for name in by)
    groups: list[dict[str, Any]] = client.get(f"/api/v1/explore?month=2026-10&{query}&column={column}").json()["groups"]
    return groups


def test_costs_and_prices_by_team_and_model_carry_month_mode_and_currency() -> None:
    shown = samples(program(*BOTH))
    assert shown["suanpan_spend"] == {
        ("2026-10", "charged", "nlp", "gpu", "", "NVIDIA-H800", "CNY"): 25.00,
        ("2026-10", "charged", "nlp", "tokens", "llama-3-8b", "", "CNY"): 10.80,
        ("2026-10", "charged", "cv", "gpu", "", "NVIDIA-H800", "CNY"): 20.00,
    }
    assert shown["suanpan_tokens"] == {("2026-10", "charged", "nlp", "llama-3-8b"): 2_400_000}
    assert shown["suanpan_price_per_million_tokens"] == {("2026-10", "charged", "nlp", "llama-3-8b", "CNY"): 4.5}
    assert shown["suanpan_gpu_hours"] == {
        ("2026-10", "charged", "nlp", "NVIDIA-H800"): 2.5, ("2026-10", "charged", "cv", "NVIDIA-H800"): 2.0,
    }  # fmt: skip
    assert set(shown["suanpan_price_per_gpu_hour"].values()) == {10.0}


def test_the_figures_are_those_of_the_api() -> None:
    client = program(*BOTH)
    shown = samples(client)
    groups = explored(client, "team", "kind")
    expected = {(one["names"]["team"], one["names"]["kind"]): float(one["total"]) for one in groups}
    assert {names[2:4]: value for names, value in shown["suanpan_spend"].items()} == expected
    prices = {
        (group["names"]["team"], group["names"]["model"]): float(group["per_1m_tokens"])
        for group in explored(client, "team", "model", column="per_1m_tokens") if group["names"]["model"]
    }  # fmt: skip
    assert {names[2:4]: value for names, value in shown["suanpan_price_per_million_tokens"].items()} == prices
    (budget,) = client.get("/api/v1/budgets").json()["results"]
    standing = budget["standing"]
    fields = {"amount": "amount", "spent": "spent", "remaining": "remaining", "forecast": "forecast_p50"}
    for name, field in fields.items():
        value = standing[field]
        found = {names[:4]: sample for names, sample in shown.get(f"suanpan_budget_{name}", {}).items()}
        assert found == ({} if value is None else {(str(budget["id"]), "nlp", "all of nlp", "2026-10"): float(value)})
    assert {names[-1] for names in shown["suanpan_budget_amount"]} == {"CNY"}
    assert Decimal(standing["spent"]) == Decimal("35.80")
    through = datetime.fromisoformat(standing["data_through"]).timestamp()
    assert list(shown["suanpan_budget_data_through_timestamp_seconds"].values()) == [through]


def test_stale_figures_are_seen_by_how_far_the_data_go_and_what_is_left_out() -> None:
    client = program(*BOTH)
    shown = samples(client)
    answer = client.get("/api/v1/explore?month=2026-10").json()
    through = datetime.fromisoformat(answer["data_through"]).timestamp()
    assert shown["suanpan_spend_data_through_timestamp_seconds"] == {("2026-10",): through}
    as_of = datetime.fromisoformat(answer["as_of"]).timestamp()
    assert shown["suanpan_spend_as_of_timestamp_seconds"] == {("2026-10",): as_of}
    silent = len(answer["missing"]["silent"])
    assert shown["suanpan_spend_left_out"]["2026-10", "silent"] == silent
    assert shown["suanpan_spend_left_out"]["2026-10", "team"] == 0


def test_a_token_of_a_team_sees_its_team_only() -> None:
    shown = samples(program(*BOTH, team="cv"))
    assert shown["suanpan_spend"] == {("2026-10", "charged", "cv", "gpu", "", "NVIDIA-H800", "CNY"): 20.00}
    assert "suanpan_budget_amount" not in shown
    assert "nlp" not in str(shown)


def test_a_scope_gives_its_own_figures_and_no_others() -> None:
    assert "suanpan_budget_amount" not in samples(program("invoices:read"))
    assert "suanpan_spend" not in samples(program("budgets:read"))
    refused = problem(program("usage:read").get("/api/v1/metrics"), 403)
    assert refused["detail"] == "this needs the scope invoices:read or budgets:read"
    problem(Client().get("/api/v1/metrics"), 401)


def test_another_month_can_be_asked_for_and_a_month_that_is_none_is_refused() -> None:
    assert "suanpan_spend" not in samples(program("invoices:read"), "?month=2026-09")
    problem(program("invoices:read").get("/api/v1/metrics?month=2026-13"), 400)
