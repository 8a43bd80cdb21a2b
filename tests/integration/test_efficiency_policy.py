"""What efficiency policies do to invoices: forms, classes, shadow, gathered short jobs, the neutral pool, and evidence.

Every job holds 8 H800 at 10.0000 per GPU-hour; amounts are worked out beside each test.
"""

import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.closing.services.closing import period_close
from billing.closing.services.showback import billing_mode_put
from billing.corrections.services.proof import period_verify
from billing.corrections.services.retroactive import retroactive_approve, retroactive_propose
from billing.invoices.models import Invoice, Note
from billing.invoices.selectors import document_of
from billing.rating.evidence import evidence_of, find_verdict, verdicts_of
from billing.rating.models import EfficiencyVerdict
from billing.setup.file import SetUpFileError
from metering.intervals import Interval
from tests import factories
from tests.factories import signed_in
from tests.factories.corrections import IN_NOVEMBER, bill, credit, people, proofs_hold, shown, whole
from tests.factories.efficiency import BANDS, job, measured
from tests.factories.pages import file_rows
from tests.stored_rows import rewrite_as_reported

pytestmark = pytest.mark.django_db
OCTOBER = Interval(*factories.SHANGHAI_OCTOBER)


def billed(directory: Path) -> list[tuple[str, str, str, str]]:
    """Close, issue, prove and export; then reason, quantity, unit price and amount of the efficiency lines of nlp."""
    bill("2026-10", factories.AFTER)
    assert all(proof.holds for proof in period_verify(month="2026-10"))
    call_command("export_focus", "2026-10", "--out", str(directory / "focus"))
    lines = document_of(Invoice.objects.get(team__code="nlp"))["lines"]
    return [
        (line["reason"], line["quantity"], line["unit_price"], line["amount"])
        for line in lines
        if line["kind"] == "efficiency"
    ]


def verdicts() -> dict[str, tuple[str, Decimal, Decimal]]:
    return {v.job.split("/")[1]: (v.reason, v.multiplier, v.effect) for v in EfficiencyVerdict.objects.all()}


def test_the_weighted_mean_of_the_documented_rule_is_what_bills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job at 60 % earns a reward of 8.00; were the mean of every job 10 %, it would cost a penalty of 16.00."""
    factories.apply(tmp_path, efficiency_policies=[BANDS])
    job(1, "0.60", "0.60")
    with monkeypatch.context() as changed:
        changed.setattr("pricing.efficiency.weighted_mean", lambda parts: Fraction(1, 10))
        (other,) = verdicts_of(window=OCTOBER, zone="Asia/Shanghai", close_seq=None, team="nlp")
        assert (other.mfu, other.effect) == (Decimal("0.1"), Decimal("16.00"))
    assert billed(tmp_path) == [("reward", "8.000000", "-1.0000", "-8.00")]


ONE, NOTHING = Decimal(1), Decimal("0.00")
LINEAR, POOL, SHADOW = {"form": "linear"}, {"neutral_pool": "true"}, {"shadow": "true"}
WASTE, MERIT = ("0.05", "0.10"), ("0.60", "0.60")
PENALTY = ("penalty", "8.000000", "2.0000", "16.00")
LONG = {"minutes": 300, "quantity": 600}
CASES: dict[str, Any] = {
    "the linear form has no cliff: 0.1999 -> 1 + 0.2 x 0.001, 0.15 -> 1.1, MFU 0.55 -> 0.95": (
        LINEAR, [("0.15", "0.1999", {}), ("0.10", "0.15", {}), ("0.55", "0.60", {}), ("0.30", "0.40", {})],
        [("penalty:1.0002", "8.000000", "0.0020", "0.02"), ("penalty:1.1000", "8.000000", "1.0000", "8.00"),
         ("reward:0.9500", "8.000000", "-0.5000", "-4.00")],
        {"job-4": ("neutral", ONE, NOTHING)},
    ),
    "at full precision: 1 + 0.2 x 0.76543211; 4,000 GPU-hours x 10 x 0.153086422 = 6,123.45688": (
        LINEAR, [("0.10", "0.123456789", {"minutes": 300, "quantity": 800})],
        [("penalty:1.153086422", "4000.000000", "1.53086422", "6123.46")],
        {"job-1": ("penalty:1.153086422", Decimal("1.153086422"), Decimal("6123.46"))},
    ),
    "two jobs of one multiplier share a line": (
        LINEAR, [("0.10", "0.15", {}), ("0.10", "0.15", {"day": 11})],
        [("penalty:1.1000", "16.000000", "1.0000", "16.00")], {},
    ),
    "a policy in shadow is shown and moves no money": (
        SHADOW, [(*WASTE, {})], [], {"job-1": ("penalty", Decimal("1.2"), Decimal("16.00"))},
    ),
    "short jobs earn no reward together": (
        {"gather_short": "true"}, [(*MERIT, {"minutes": 20}), (*MERIT, {"minutes": 25})], [], {},
    ),
    "rewards of a team that switched its telemetry off are suspended, penalties are not": (
        {"unrewarded": ["nlp"]}, [(*MERIT, {}), (*WASTE, {})], [PENALTY], {"job-1": ("neutral:suspended", ONE, NOTHING)},
    ),
    "a pool pays rewards from penalties: 16.00 are two thirds of 24 GPU-h x 10 x 0.10": (
        POOL, [(*WASTE, {}), (*MERIT, {"minutes": 180})],
        [PENALTY, ("reward:0.933333333333", "24.000000", "-0.6666666666666667", "-16.00")],
        {"job-2": ("reward:0.933333333333", Decimal("0.933333333333"), Decimal("-16.00"))},
    ),
    "D10: 3,000 GPU-hours x 10 x 0.20 pay 1/15 of 9,000 x 10, where 0.10 of it was promised": (
        POOL, [(*WASTE, LONG), *((*MERIT, {**LONG, "day": day}) for day in (11, 12, 13))],
        [("penalty", "3000.000000", "2.0000", "6000.00"),
         ("reward:0.933333333333", "9000.000000", "-0.6666666666666667", "-6000.00")], {},
    ),
    "a pool without penalties pays nothing": (POOL, [(*MERIT, {})], [], {"job-1": ("neutral", ONE, NOTHING)}),
    "a pool in shadow shows what it would pay": (
        {**POOL, **SHADOW}, [(*WASTE, {}), (*MERIT, {"minutes": 180})], [],
        {"job-1": ("penalty", Decimal("1.2"), Decimal("16.00")),
         "job-2": ("reward:0.933333333333", Decimal("0.933333333333"), Decimal("-16.00"))},
    ),
    "a pool with enough penalties pays in full": (
        POOL, [(*WASTE, {}), (*MERIT, {})], [PENALTY, ("reward", "8.000000", "-1.0000", "-8.00")], {},
    ),
}  # fmt: skip
"""Fields of the policy, jobs, the lines that are billed, and verdicts of some jobs; worked out by hand."""


@pytest.mark.parametrize(("policy", "jobs", "lines", "judged"), CASES.values(), ids=CASES)
def test_a_policy_bills(tmp_path: Path, policy: dict[str, Any], jobs: Any, lines: Any, judged: dict[str, Any]) -> None:
    factories.apply(tmp_path, efficiency_policies=[{**BANDS, **policy}])
    for number, (mfu, hfu, changed) in enumerate(jobs, start=1):
        job(number, mfu, hfu, **changed)
    assert billed(tmp_path) == lines
    assert verdicts().items() >= judged.items()
    assert {verdict.shadow for verdict in EfficiencyVerdict.objects.all()} == {"shadow" in policy}


def test_classes_have_bands_of_their_own_and_exemptions_that_end(tmp_path: Path) -> None:
    """Small models: reward from 0.35; queue `debug`: exempt until 15 October, local time; the rest by the policy's bands."""
    classes = [
        {"name": "debug", "queues": ["debug*"], "exempt_until": "2026-10-15"},
        {"name": "small", "queues": ["small"], "mfu_above": "0.35", "reward": "0.05"},
    ]
    factories.apply(tmp_path, efficiency_policies=[
        {**BANDS, "classes": classes},
        {**BANDS, "name": "bands-v2", "valid_from": "2026-10-20", "classes": classes},
    ])  # fmt: skip
    job(1, "0.05", "0.10", queue="debug-1")
    job(2, "0.05", "0.10", queue="debug-1", day=21)
    job(3, "0.40", "0.45", queue="small")
    job(4, "0.40", "0.45", queue="large")
    assert billed(tmp_path) == [
        ("reward:0.9500", "8.000000", "-0.5000", "-4.00"),
        ("penalty", "8.000000", "2.0000", "16.00"),
    ]
    reported = verdicts()
    assert reported["job-1"] == ("neutral:exempt", Decimal(1), Decimal("0.00"))
    assert reported["job-4"] == ("neutral", Decimal(1), Decimal("0.00"))
    assert EfficiencyVerdict.objects.get(job="PyTorchJob/job-3").workload_class == "small"


def test_a_policy_that_penalises_on_mfu_is_not_escaped_by_recomputation(tmp_path: Path) -> None:
    """MFU 0.16 and HFU 0.2133: 8 GPU-hours at 10 x 0.20; the class of small models stays with HFU."""
    small = {"name": "small", "queues": ["small"], "penalise_on": "hfu"}
    factories.apply(tmp_path, efficiency_policies=[{**BANDS, "penalise_on": "mfu", "classes": [small]}])
    job(1, "0.16", "0.2133")
    job(2, "0.16", "0.2133", queue="small", day=11)
    job(3, "0.20", "0.2667", day=12)
    assert billed(tmp_path) == [("penalty", "8.000000", "2.0000", "16.00")]
    assert {name: verdict[0] for name, verdict in verdicts().items()} == {
        "job-1": "penalty", "job-2": "neutral", "job-3": "neutral",
    }  # fmt: skip
    client = signed_in(factories.person("ana", "finance"))
    assert "MFU</span>" in client.get("/prices/").content.decode()


def test_splitting_a_job_avoids_no_penalty(tmp_path: Path) -> None:
    """Two jobs of 20 minutes: 2 x 8/3 GPU-hours x 10 x 0.20 = 10.6667; alone on its day the third stays too short."""
    factories.apply(tmp_path, efficiency_policies=[{**BANDS, "gather_short": "true"}])
    job(1, "0.05", "0.10", minutes=20)
    start = datetime(2026, 10, 10, 1, tzinfo=UTC)
    factories.ingest_allocations(
        factories.allocation_record(2, started_at=start.isoformat(), ended_at="2026-10-10T01:20:00Z",
                                    observed_until="2026-10-10T01:20:00Z", workload={"kind": "PyTorchJob", "name": "job-2"})
    )  # fmt: skip
    measured(2, "0.05", "0.10", start, start.replace(minute=20))
    job(3, "0.05", "0.10", minutes=20, day=12)
    assert billed(tmp_path) == [("penalty", "5.333333", "2.0000", "10.67")]
    assert verdicts()["job-3"][0] == "neutral:short"


@pytest.mark.parametrize("queues", [("small", "large"), ("large", "small")])
def test_short_jobs_of_two_classes_are_not_judged_by_the_bands_of_one(tmp_path: Path, queues: tuple[str, str]) -> None:
    """HFU 0.10 is enough for small models (from 0.05), not for the rest (from 0.20): alone in its class each is too short.

    Together they were judged by the bands of the job whose name comes first: 0.00, or 5.3333 GPU-hours x 10 x 0.20 = 10.67.
    """
    small = {"name": "small", "queues": ["small"], "hfu_below": "0.05"}
    factories.apply(tmp_path, efficiency_policies=[{**BANDS, "gather_short": "true", "classes": [small]}])
    for number, queue in enumerate(queues, start=1):
        start = datetime(2026, 10, 10, number, tzinfo=UTC)
        end = start.replace(minute=20).isoformat()
        factories.ingest_allocations(
            factories.allocation_record(number, started_at=start.isoformat(), ended_at=end, observed_until=end, queue=queue,
                                        workload={"kind": "PyTorchJob", "name": f"job-{number}"})
        )  # fmt: skip
        measured(number, "0.05", "0.10", start, start.replace(minute=20))
    assert billed(tmp_path) == []
    assert {reason for reason, *_ in verdicts().values()} == {"neutral:short"}


def test_a_neutral_pool_over_several_teams_and_prices_is_split_to_the_cent(tmp_path: Path) -> None:
    """8 x 10 x 0.20 = 16.00 pays three rewards of 8, 8 and 8 promised: 5.33 1/3 each, the cent to the earliest line."""
    cv = {"cluster": "hq-1", "namespace": "cv-*", "team": "cv", "valid_from": "2026-01-01"}
    factories.apply(
        tmp_path, efficiency_policies=[{**BANDS, "neutral_pool": "true"}], ownership=[*factories.SET_UP["ownership"], cv]
    )
    job(1, "0.05", "0.10")
    for number, namespace in ((2, "cv-a"), (3, "cv-b"), (4, "nlp-train")):
        job(number, "0.60", "0.60", day=10 + number, namespace=namespace)
    assert billed(tmp_path) == [
        ("penalty", "8.000000", "2.0000", "16.00"), ("reward:0.933333333333", "8.000000", "-0.66625", "-5.33"),
    ]  # fmt: skip
    assert efficiency_of("cv") == ["-5.34", "-5.33"]


SHOWN: dict[str, Any] = {
    "a penalty that nobody pays pays no reward": ([("nlp-train", MERIT, 60), ("cv", WASTE, 60)], [], ["16.00"]),
    "a reward that is only shown takes nothing of what the others are paid": (
        [("nlp-train", WASTE, 60), ("nlp-dev", MERIT, 180), ("cv", MERIT, 180)], ["-16.00", "16.00"], [],
    ),
    "teams that are only shown have a pool of their own": (
        [("nlp-train", WASTE, 60), ("nlp-dev", MERIT, 180), ("cv", WASTE, 120), ("cv", MERIT, 180)],
        ["-16.00", "16.00"], ["32.00", "-24.00"],
    ),
}  # fmt: skip
"""Jobs of nlp, which is charged, and of cv, which is only shown it; then the efficiency lines of both.

An hour of waste is a penalty of 8 GPU-hours x 10 x 0.20 = 16.00, one of merit a promise of 8 x 10 x 0.10 = 8.00.
"""


@pytest.mark.parametrize(("jobs", "charged", "shown_only"), SHOWN.values(), ids=SHOWN)
def test_a_pool_is_of_the_teams_that_are_charged(
    tmp_path: Path, jobs: Any, charged: list[str], shown_only: list[str]
) -> None:
    people()
    factories.apply(tmp_path, efficiency_policies=[{**BANDS, **POOL}])
    for number, (namespace, (mfu, hfu), minutes) in enumerate(jobs, start=1):
        job(number, mfu, hfu, day=10 + number, minutes=minutes, namespace=namespace)
    only_shown("cv")
    billed(tmp_path)
    assert (efficiency_of("nlp"), efficiency_of("cv")) == (charged, shown_only)


def only_shown(team: str) -> None:
    billing_mode_put(
        team=team, from_month="2026-10", mode="shadow", reason="first quarter", actor="fin", now=factories.AFTER
    )


def efficiency_of(team: str) -> list[str]:
    document = document_of(Invoice.objects.get(team__code=team))
    return [line["amount"] for line in document["lines"] if line["kind"] == "efficiency"]


def two_of_a_pool(tmp_path: Path) -> None:
    people()
    factories.apply(tmp_path, efficiency_policies=[{**BANDS, "neutral_pool": "true"}])
    job(1, "0.05", "0.10")
    job(2, "0.60", "0.60", minutes=180)


def test_a_line_of_the_pool_is_reversed_and_billed_again_like_any_other(tmp_path: Path) -> None:
    """The reversal mirrors quantity, price and amount; half of the hours bring 8.00 at the same price."""
    two_of_a_pool(tmp_path)
    billed(tmp_path)
    number = Invoice.objects.get(team__code="nlp").number
    lines = document_of(Invoice.objects.get(team__code="nlp"))["lines"]
    (position,) = [line["position"] for line in lines if line["reason"] == "reward:0.933333333333"]
    note, rebill = credit(whole(position, rebill_quantity=Decimal(12)), number=number)
    assert shown(note) == [("reversal", "efficiency", "-24.000000", "-0.6666666666666667", "16.00")]
    assert shown(rebill) == [("rebill", "efficiency", "12.000000", "-0.6666666666666667", "-8.00")]
    assert proofs_hold("2026-10")
    call_command("export_journal", "2026-10", "--out", str(tmp_path / "journal.csv"), "--provider-cost-center", "CC-900")
    rows = file_rows(tmp_path / "journal.csv")
    sides = [sum(Decimal(row[side] or 0) for row in rows) for side in ("debit", "credit")]
    assert sides[0] == sides[1] > 0


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside a team that is only shown its costs"])
def test_a_price_that_was_another_one_moves_the_pool_with_it(tmp_path: Path, beside: bool) -> None:
    """At 5 instead of 10 per GPU-hour the penalty is 8.00, and so is what it pays: both lines are billed anew."""
    two_of_a_pool(tmp_path)
    if beside:
        job(3, "0.05", "0.10", namespace="cv")
        only_shown("cv")
    billed(tmp_path)
    change = retroactive_propose(
        kind="price", name="half", valid_from=OCTOBER.start, valid_until=None, reason="typed twice", evidence="INC-1",
        fact={"gpu": [{"accelerator": "NVIDIA-H800", "price": "5"}]}, actor="sam", now=IN_NOVEMBER,
    )  # fmt: skip
    retroactive_approve(change_id=change.pk, actor="fin", now=IN_NOVEMBER)
    lines = [
        (style, kind, price, amount)
        for note in Note.objects.order_by("kind", "sequence")
        for style, kind, _, price, amount in shown(note)
    ]
    assert lines == [
        ("reversal", "gpu", "10.0000", "-320.00"), ("reversal", "efficiency", "2.0000", "-16.00"),
        ("reversal", "efficiency", "-0.6666666666666667", "16.00"), ("rebill", "gpu", "5.0000", "160.00"),
        ("rebill", "efficiency", "1.0000", "8.00"), ("rebill", "efficiency", "-0.3333333333333333", "-8.00"),
    ]  # fmt: skip
    assert proofs_hold("2026-10")


@pytest.mark.parametrize(
    ("changed", "reported"),
    [
        ({"form": "round"}, r"efficiency_policies\[0\].form: 'round' must be one of bands, linear"),
        ({"penalise_on": "gpu_util"}, r"penalise_on: 'gpu_util' must be one of hfu, mfu"),
        ({"width": "0"}, r"efficiency_policies\[0\].width: '0' must be a decimal from 0.000001 to 1"),
        ({"penalty": "0_2"}, r"efficiency_policies\[0\].penalty: '0_2' must be a decimal from 0 to 1"),
        ({"hfu_below": "0.6"}, r"efficiency_policies\[0\].hfu_below: 0.6 must not be above mfu_above 0.50"),
        ({"shadow": "maybe"}, r"efficiency_policies\[0\].shadow: 'maybe' must be one of true, false"),
        ({"unrewarded": ["nobody"]}, r"efficiency_policies\[0\].unrewarded: 'nobody' is no team"),
        ({"classes": [{"name": "x"}]}, r"efficiency_policies\[0\].classes\[0\].name: 'x' changes nothing"),
        (
            {"classes": [{"name": "x", "reward": "0.05"}, {"name": "y", "hfu_below": "0.500001"}]},
            r"efficiency_policies\[0\].classes\[1\].hfu_below: 0.500001 must not be above mfu_above 0.50",
        ),
        (
            {"classes": [{"name": "x", "mfu_above": "0.19"}]},
            r"efficiency_policies\[0\].classes\[0\].mfu_above: 0.19 must not be below hfu_below 0.20",
        ),
        (
            {"classes": [{"name": "x", "mfu_above": "0.30", "hfu_below": "0.40"}]},
            r"efficiency_policies\[0\].classes\[0\].hfu_below: 0.40 must not be above mfu_above 0.30",
        ),
        ({"classes": [{"name": "x", "reward": "2"}]}, r"classes\[0\].reward: '2' must be a decimal from 0 to 1"),
        ({"classes": [{"name": "x", "kind": "y"}]}, r"classes\[0\].kind: is no field here"),
    ],
)
def test_a_bad_policy_is_refused_by_field_and_value(tmp_path: Path, changed: dict[str, Any], reported: str) -> None:
    with pytest.raises(SetUpFileError, match=reported):
        factories.apply(tmp_path, efficiency_policies=[{**BANDS, **changed}])


def test_evidence_holds_what_the_verdict_weighed_and_never_changes_after_the_close(tmp_path: Path) -> None:
    factories.apply(tmp_path, efficiency_policies=[BANDS])
    job(1, "0.05", "0.10")
    live = verdicts_of(window=OCTOBER, zone="Asia/Shanghai", close_seq=None, team="nlp")
    asked = {"cluster": "hq-1", "namespace": "nlp-train", "job": "PyTorchJob/job-1", "policy": "bands-v1"}
    verdict = find_verdict(live, **asked)
    assert verdict is not None
    before = evidence_of(verdict, window=OCTOBER, close_seq=None)
    assert before["verdict"]["reason"] == "penalty"
    assert before["verdict"]["effect"] == "16"
    assert [(s["mfu"], s["hfu"], s["gpu_seconds"], s["dense_peak_tflops"]) for s in before["samples"]] == [
        ("0.05", "0.1", "28800", "989.4")
    ]
    assert [(s["method"], s["reason"]) for s in before["samples"]] == [("palm (torchtitan)", "look at it")]
    assert [(h["pod"], h["quantity"], h["until"]) for h in before["holds"]] == [("train-1", 8, "2026-10-10T01:00:00Z")]
    assert before["policy"]["penalty"] == "0.2"
    period_close(month="2026-10", actor="ops", now=factories.AFTER)
    measured(1, "0.90", "0.90", datetime(2026, 10, 10, 0, 30, tzinfo=UTC), datetime(2026, 10, 10, 0, 40, tzinfo=UTC))
    stored = find_verdict(verdicts_of(window=OCTOBER, zone="Asia/Shanghai", close_seq=1, team="nlp"), **asked)
    assert stored is not None
    assert evidence_of(stored, window=OCTOBER, close_seq=1) == before
    client = signed_in(factories.person("ann", "lead", team="nlp"))
    response = client.get("/teams/nlp/evidence/", {"month": "2026-10", **asked})
    assert response.json() == before
    assert response["Content-Disposition"].endswith(f'{before["sha256"][:12]}.json"')
    assert client.get("/teams/nlp/evidence/", {"month": "2026-10", **asked, "job": "x"}).status_code == 404
    page = client.get("/teams/nlp/", {"month": "2026-10"}).content.decode()
    assert "/teams/nlp/evidence/?month=2026-10&amp;cluster=hq-1&amp;namespace=nlp-train&amp;job=PyTorchJob%2Fjob-1" in page


def test_a_class_may_go_as_far_as_the_policy_and_beyond_with_bands_of_its_own(tmp_path: Path) -> None:
    classes = [{"name": "x", "hfu_below": "0.50"}, {"name": "y", "hfu_below": "0.60", "mfu_above": "0.60"}]
    applied = factories.apply(tmp_path, efficiency_policies=[{**BANDS, "classes": classes}])
    assert any("efficiency policy bands-v1" in change for change in applied.changes)


def test_a_policy_that_is_stored_with_a_class_that_contradicts_it_stays_and_may_be_declared(tmp_path: Path) -> None:
    """As one of before that was refused: an HFU below 0.60 costs the penalty first, 8 GPU-hours at 10 x 0.20."""
    policy = {**BANDS, "classes": [{"name": "x", "hfu_below": "0.50"}]}
    factories.apply(tmp_path, efficiency_policies=[policy])
    rewrite_as_reported("UPDATE rates_efficiencypolicy SET classes = %s", [json.dumps([{"name": "x", "hfu_below": "0.60"}])])
    declared = {**policy, "classes": [{"name": "x", "hfu_below": "0.60"}]}
    assert factories.apply(tmp_path, efficiency_policies=[declared]).changes == []
    job(1, "0.55", "0.55")
    assert billed(tmp_path) == [("penalty", "8.000000", "2.0000", "16.00")]
    with pytest.raises(SetUpFileError, match=r"classes\[0\].hfu_below: 0.60 must not be above mfu_above 0.50"):
        factories.apply(tmp_path, efficiency_policies=[declared, {**declared, "name": "v2", "valid_from": "2026-12-01"}])
