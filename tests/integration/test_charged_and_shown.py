"""A month in which a team is both charged and only shown something: no page hides one behind the other."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from billing.budgets.services import standings_refresh
from billing.closing.services.closing import period_close
from billing.closing.services.showback import billing_mode_put
from tests.factories import apply, ingest_allocations, person, signed_in
from tests.factories.months import NOVEMBER_OVER, OCTOBER_OVER
from tests.factories.pages import rows_of
from tests.factories.usage import hold

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 11, 20, 4, tzinfo=UTC)


@pytest.mark.parametrize("closed", [False, True])
def test_what_came_late_of_a_charged_month_stands_beside_what_is_only_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    """nlp is charged for October, of which 1 h comes late, 10.00; only shown November, 3 h, 30.00; its budget: 100.00."""
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    person("app", "approver")
    apply(tmp_path, budgets=[{"team": "nlp", "amount": "100.00"}])
    ingest_allocations(hold(1, "2026-10-05T00:00:00Z", "2026-10-05T02:00:00Z", quantity=1))
    period_close(month="2026-10", actor="ops", now=OCTOBER_OVER)
    billing_mode_put(team="nlp", from_month="2026-11", mode="shadow", reason="pilot", actor="app", now=NOW)
    ingest_allocations(
        hold(2, "2026-10-06T00:00:00Z", "2026-10-06T01:00:00Z", quantity=1),
        hold(3, "2026-11-06T00:00:00Z", "2026-11-06T03:00:00Z", quantity=1), now=NOW,
    )  # fmt: skip
    (standing,) = standings_refresh(now=NOW)
    if closed:
        monkeypatch.setattr("django.utils.timezone.now", lambda: NOVEMBER_OVER)
        period_close(month="2026-11", actor="ops", now=NOVEMBER_OVER)
    person("lead", "lead", team="nlp")
    client = signed_in("lead")
    listed = rows_of(client, "/overview/?month=2026-11&table=teams&as=csv")
    assert (str(standing.spent), [(row["mode"], row["total"], row["budget_used"]) for row in listed]) == (
        "40.00", [("shadow", "30.00", "0.4"), ("chargeback", "10.00", "0.4")]
    )  # fmt: skip
    for asked, total, other in (("", "30.00", "10.00"), ("&mode=chargeback", "10.00", "30.00")):
        page = client.get(f"/teams/nlp/?month=2026-11{asked}")
        assert (str(page.context["statement"].total), str(page.context["other"].total)) == (total, other)
        text = page.content.decode()
        assert (f">{other}</a></dd>" in text, "part=end" in text) == (True, not closed and total == "30.00")
        assert page.context["budget_used"] == Decimal("0.4")
        rows = rows_of(client, f"/teams/nlp/?month=2026-11{asked}&table=lines&as=csv")
        assert [row["amount"] for row in rows] == [total]
    spending = client.get("/spending/?month=2026-11")
    assert (str(spending.context["total"]), str(spending.context["board"].apart)) == ("30.00", "10.00")
    for asked in ("", "&namespace=nlp-train"):
        assert str(client.get(f"/spending/?month=2026-11{asked}").context["last"]) == "20.00", "October was charged"
    found = client.get("/explorer/?month=2026-11").context["found"]
    assert (found.shadow, str(found.total.total), str(found.apart)) == (True, "30.00", "10.00")
