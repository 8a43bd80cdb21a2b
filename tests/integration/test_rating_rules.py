"""A month that an older release closed is rated by the rules of that release, for ever; what is closed now by those of now.

Every job holds 8 H800 at 10.0000 per GPU-hour. Amounts are worked out beside each case.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.closing.services.reopening import reopening_step
from billing.closing.services.showback import billing_mode_put
from billing.corrections.effect import effect_of
from billing.corrections.services.proof import closed_periods_check
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of
from billing.rating import rules
from billing.usage.models import Close
from tests import factories
from tests.factories.closing import close
from tests.factories.commands import Manage
from tests.factories.corrections import IN_NOVEMBER, NOVEMBER_OVER, account, bill, people, proofs_hold, shown
from tests.factories.efficiency import BANDS, job, measured

pytestmark = pytest.mark.django_db
WASTE, MERIT = ("0.05", "0.10"), ("0.60", "0.60")


@contextmanager
def release_1_0_0() -> Iterator[None]:
    """What is closed inside is closed as 1.0.0 did it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "NOW", 1)
        yield


@contextmanager
def a_later_release() -> Iterator[None]:
    """What is closed inside is closed by rules that come after those of now."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(rules.RULES, rules.NOW + 1, rules.RatingRules())
        patch.setattr(rules, "NOW", rules.NOW + 1)
        yield


def measured_twice() -> None:
    """8 GPUs for an hour: half of it was measured with 0.30, then all of it with 0.14.

    1.0.0 weighed both whole: (14,400 x 0.30 + 28,800 x 0.14) / 43,200 = 0.1933, below 0.20: a penalty of 8 x 10 x 0.20. Now
    only the other half of the second counts: 0.22, neutral.
    """
    start = datetime(2026, 10, 10, tzinfo=UTC)
    end = start.replace(hour=1)
    factories.ingest_allocations(factories.allocation_record(
        started_at=start.isoformat(), ended_at=end.isoformat(), observed_until=end.isoformat(),
        workload={"kind": "PyTorchJob", "name": "job-1"},
    ))  # fmt: skip
    measured(1, "0.30", "0.30", start, start.replace(minute=30))
    measured(1, "0.14", "0.14", start, end)


def short_of_two_classes() -> None:
    """HFU 0.10 is a waste by the policy (0.20), not for small models (0.05); 2 x 8 GPUs x 20 minutes, 5.3333 GPU-hours.

    1.0.0 judged both by the bands of job-1, which is no small model: 5.3333 x 10 x 0.20 = 10.67. Alone in its class each is
    too short.
    """
    for number, queue in ((1, "large"), (2, "small")):
        start = datetime(2026, 10, 10, number, tzinfo=UTC)
        end = start.replace(minute=20)
        factories.ingest_allocations(factories.allocation_record(
            number, started_at=start.isoformat(), ended_at=end.isoformat(), observed_until=end.isoformat(), queue=queue,
            workload={"kind": "PyTorchJob", "name": f"job-{number}"},
        ))  # fmt: skip
        measured(number, *WASTE, start, end)


def pool_of_both() -> None:
    """cv is only shown its costs. 1.0.0 paid nlp its 8 x 10 x 0.10 from the 16.00 of cv, which nobody pays."""
    job(1, *MERIT)
    job(2, *WASTE, day=11, namespace="cv")
    billing_mode_put(
        team="cv", from_month="2026-10", mode="shadow", reason="first quarter", actor="fin", now=factories.AFTER
    )


def carried_by_the_platform() -> None:
    """A preempted job gets its 80.00 back. 1.0.0 had it pay a penalty of 16.00 for the hour all the same."""
    job(1, *WASTE, end_reason="preempted")


def more_than_was_held() -> None:
    """8 GPUs for an hour, and a source that counts each of them twice: 16 GPU-hours. 1.0.0 took that for all of the hour."""
    start = datetime(2026, 10, 10, tzinfo=UTC)
    end = start.replace(hour=1)
    factories.ingest_allocations(factories.allocation_record(
        started_at=start.isoformat(), ended_at=end.isoformat(), observed_until=end.isoformat(),
        workload={"kind": "PyTorchJob", "name": "job-1"},
    ))  # fmt: skip
    measured(1, *WASTE, start, end, gpus=16)


SLA = {"name": "sla-v1", "valid_from": "2026-10-01", "preempted": "platform"}
SMALL = {"name": "small", "queues": ["small"], "hfu_below": "0.05"}
CASES: dict[str, Any] = {
    "time that was measured twice": (
        {}, measured_twice, [("penalty", "8.000000", "2.0000", "16.00")], "96.00",
        [("reversal", "gpu", "-8.000000", "10.0000", "-80.00"), ("reversal", "efficiency", "-8.000000", "2.0000", "-16.00")],
        [("rebill", "gpu", "8.000000", "5.0000", "40.00"), ("rebill", "efficiency", "8.000000", "1.0000", "8.00")],
    ),
    "more time was measured than was held": (
        {}, more_than_was_held, [("penalty", "8.000000", "2.0000", "16.00")], "96.00",
        [("reversal", "gpu", "-8.000000", "10.0000", "-80.00"), ("reversal", "efficiency", "-8.000000", "2.0000", "-16.00")],
        [("rebill", "gpu", "8.000000", "5.0000", "40.00"), ("rebill", "efficiency", "8.000000", "1.0000", "8.00")],
    ),
    "short jobs of two classes": (
        {"gather_short": "true", "classes": [SMALL]}, short_of_two_classes,
        [("penalty", "5.333333", "2.0000", "10.67")], "64.00",
        [("reversal", "gpu", "-5.333333", "10.0000", "-53.33"),
         ("reversal", "efficiency", "-5.333333", "2.0000", "-10.67")],
        [("rebill", "gpu", "5.333333", "5.0000", "26.67"), ("rebill", "efficiency", "5.333333", "1.0000", "5.33")],
    ),
    "a pool of teams that are charged and of others": (
        {"neutral_pool": "true"}, pool_of_both, [("reward", "8.000000", "-1.0000", "-8.00")], "72.00",
        [("reversal", "gpu", "-8.000000", "10.0000", "-80.00"), ("reversal", "efficiency", "-8.000000", "-1.0000", "8.00")],
        [("rebill", "gpu", "8.000000", "5.0000", "40.00"), ("rebill", "efficiency", "8.000000", "-0.5000", "-4.00")],
    ),
    "time that the platform carries": (
        {}, carried_by_the_platform, [("penalty", "8.000000", "2.0000", "16.00")], "16.00",
        [("reversal", "gpu", "-8.000000", "10.0000", "-80.00"), ("reversal", "efficiency", "-8.000000", "2.0000", "-16.00"),
         ("reversal", "interruption", "-8.000000", "-10.0000", "80.00")],
        [("rebill", "gpu", "8.000000", "5.0000", "40.00"), ("rebill", "efficiency", "8.000000", "1.0000", "8.00"),
         ("rebill", "interruption", "8.000000", "-5.0000", "-40.00")],
    ),
}  # fmt: skip
"""Policy and usage; the efficiency lines and the total of nlp, as the code of 1.0.0 itself made them (by the rules of now
there is none of these lines); then the notes of a price of 5 instead of 10, which halves all of it."""


@pytest.fixture
def month(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    policy, used, *expected = request.param
    people()
    factories.apply(tmp_path, efficiency_policies=[{**BANDS, **policy}], interruption_policies=[SLA], billing={
        "currency": "CNY", "zone": "Asia/Shanghai", "issuer": "AI-INFRA", "review": "none", "reopening": "two-persons",
    })  # fmt: skip
    used()
    return expected


def efficiency_lines() -> list[tuple[str, ...]]:
    document = document_of(Invoice.objects.exclude(status="void").get(team__code="nlp"))
    names = ("reason", "quantity", "unit_price", "amount")
    return [tuple(line[name] for name in names) for line in document["lines"] if line["kind"] == "efficiency"]


@pytest.mark.parametrize("month", CASES.values(), ids=CASES, indirect=True)
def test_a_month_of_an_older_release_is_proven_and_corrected_by_its_own_rules(
    month: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines, total, credited, billed_again = month
    with release_1_0_0():
        bill(now=factories.AFTER)
    assert (efficiency_lines(), account("nlp")) == (lines, Decimal(total))
    call_command("export_focus", "2026-10", "--out", str(tmp_path / "focus"))  # refused if hours did not add up to the lines

    call_command("period_verify", "2026-10")
    assert "documents follow from their usage, by the rules of 1.0.0\n" in capsys.readouterr().out
    assert closed_periods_check() == ["2026-10"]
    robots = {"cluster": "hq-1", "namespace": "robots", "team": "cv", "valid_from": "2026-10-20T00:00:00+08:00"}
    factories.apply(tmp_path, ownership=[*factories.SET_UP["ownership"], robots])  # reaches into October
    assert closed_periods_check() == []

    change = retroactive_propose(
        kind="price", name="half", valid_from=factories.SHANGHAI_OCTOBER[0], valid_until=None, reason="typed twice",
        evidence="INC-1", actor="sam", now=IN_NOVEMBER,
        fact={"gpu": [{"accelerator": "NVIDIA-H800", "resource": "", "price": "5"}], "tokens": []},
    )  # fmt: skip
    assert [(row.team, row.charged, row.difference) for row in effect_of(change).by_team_and_month()] == [
        ("nlp", Decimal(total), -Decimal(total) / 2)
    ]
    retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER)
    notes = {note.kind: shown(note) for note in Note.objects.all()}
    assert notes == {"credit": credited, "rebill": billed_again}
    assert account("nlp") == Decimal(total) / 2
    bill("2026-11", NOVEMBER_OVER)
    assert proofs_hold("2026-10", "2026-11")
    assert list(Close.objects.order_by("close_seq").values_list("rating_rules", flat=True)) == [1, 3]


@pytest.mark.parametrize("month", CASES.values(), ids=CASES, indirect=True)
def test_a_month_that_is_opened_again_is_closed_by_the_rules_of_now(month: Any) -> None:
    with release_1_0_0():
        close()
    assert efficiency_lines() == month[0]
    for step, actor in (("request", "sam"), ("approve", "fin")):
        reopening_step(step=step, month="2026-10", reason="by the rules of now", actor=actor, now=factories.AFTER)
    close()
    assert efficiency_lines() == []
    assert proofs_hold("2026-10")


def test_a_month_that_a_later_release_closed_is_refused_and_not_rated_by_the_rules_of_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither is it proven, nor does anything change it; what comes after it is closed by the rules of now."""
    people()
    factories.apply(tmp_path, efficiency_policies=[BANDS])
    job(1, *WASTE)
    with a_later_release():
        bill(now=factories.AFTER)
        assert proofs_hold("2026-10")
    number = Close.objects.get().close_seq
    words = f"close {number} was made by a later release, whose rules of rating this one does not know"
    done = Manage(capsys)("period_verify", "2026-10")
    assert (done.status, done.out, words in done.err) == (2, "", True)
    robots = {"cluster": "hq-1", "namespace": "robots", "team": "cv", "valid_from": "2026-10-20T00:00:00+08:00"}
    with pytest.raises(rules.RulesUnknownError, match=words):
        factories.apply(tmp_path, ownership=[*factories.SET_UP["ownership"], robots])
    assert rules.rules_of(number + 1) == rules.RULES[rules.NOW]
