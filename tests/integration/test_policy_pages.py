"""Policies and carbon factors by form: by the rule of the set-up file, with what moves shown before it is saved."""

from datetime import date
from html import unescape
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.contrib.auth.models import User
from django.test import Client

from billing.invoices.services.periods import period_open
from billing.rates.models import AllocationPolicy, CarbonFactors, EfficiencyPolicy, InterruptionPolicy
from billing.setup.policies import billing_declared, policies_apply, policies_declared, policies_text
from billing.tenancy.models import AuditEntry, BillingSetup
from tests.factories import SET_UP, apply, ingest_allocations, person, signed_in
from tests.factories.usage import POLICY, hold, sample

pytestmark = pytest.mark.django_db
STORE = {"name": "datasets", "storage": [{"tier": "hot", "tb_months": "2", "price_per_tb_month": "150"}], "method": "even"}
SECTIONS: dict[str, list[dict[str, Any]]] = {
    "efficiency_policies": [{**POLICY, "classes": [{"name": "notebooks", "kinds": ["Notebook"], "penalty": "0"}]}],
    "interruption_policies": [{"name": "sla-1", "valid_from": "2026-10-01", "preempted": "platform",
                               "node_lost": {"cap_hours": "1"}}],
    "allocation_policies": [{
        "name": "idle-1", "valid_from": "2026-10-01", "shared": [{"name": "gateway", "amount_per_month": "100.00",
        "method": "fixed", "shares": {"nlp": "0.7", "cv": "0.3"}}, STORE],
    }],
    "carbon": [{"cluster": "hq-1", "valid_from": "2026-01-01", "region": "CN-East", "year": "2023"}],
}  # fmt: skip


@pytest.fixture
def admin() -> Client:
    return signed_in(person("adam", "admin"))


def used() -> None:
    """October, open: a job of nlp of 2 x 2 h at 10 that wastes, and one of cv of 2 x 1 h that nobody measured."""
    ingest_allocations(
        hold(4, "2026-10-12T00:00:00Z", "2026-10-12T02:00:00Z", quantity=2, namespace="nlp-train"),
        hold(5, "2026-10-12T00:00:00Z", "2026-10-12T01:00:00Z", quantity=2, namespace="cv"),
    )
    sample("2026-10-12T00:00:00Z", "2026-10-12T02:00:00Z", "14400", "0.10", "0.15", uid="uid-4")
    period_open(month="2026-10")


def looked(client: Client, kind: str, **fields: Any) -> Any:
    return client.post(f"/prices/policies/look/{kind}/", fields)


def saved(client: Client, answer: Any) -> None:
    text = answer.context["text"]
    assert client.post("/prices/policies/apply/", {"text": text})["Location"] == "/prices/policies/"


def moved(answer: Any) -> dict[str, tuple[str, str]]:
    return {row.payer: (str(row.before.amount), str(row.after.amount)) for row in answer.context["preview"].moved}


BANDS = {
    "name": "bands-1", "valid_from": "2026-10-01", "hfu_below": "0.20", "penalise_on": "hfu", "penalty": "0.20",
    "mfu_above": "0.50", "reward": "0.10", "min_minutes": "30", "min_coverage": "0.95",
}  # fmt: skip


def test_a_penalty_is_shown_by_team_before_it_is_saved(admin: Client, tmp_path: Path) -> None:
    """4 GPU-hours at 10.0000 below 20 % HFU cost 20 % more: 48.00 instead of 40.00; cv's 20.00 stays and is not listed."""
    apply(tmp_path)
    used()
    answer = looked(admin, "efficiency", **BANDS)
    assert moved(answer) == {"nlp": ("40.00", "48.00")}
    page = answer.content.decode()
    assert "efficiency_policies:" in page
    assert not EfficiencyPolicy.objects.exists()
    saved(admin, answer)
    assert EfficiencyPolicy.objects.get().name == "bands-1"
    entry = AuditEntry.objects.get(action="efficiency_policy_publish")
    assert entry.actor == "adam"


def test_a_policy_that_begins_after_the_open_months_says_that_there_is_no_month_to_compare(
    admin: Client, tmp_path: Path
) -> None:
    apply(tmp_path)
    used()
    begins = "2099-12-01"
    later = "It begins on 2099-12-01, after the last open month: there is no month to compare."
    answer = looked(admin, "efficiency", **{**BANDS, "valid_from": begins})
    assert moved(answer) == {}
    assert later in answer.content.decode()
    carbon = {"name": "hq-1", "region": "CN-North", "year": "2023"}
    assert later in looked(admin, "carbon", **carbon, valid_from=begins).content.decode()
    now = looked(admin, "carbon", **carbon, valid_from="2026-10-01").content.decode()
    assert "No amount of an open month changes." in now
    assert "no month to compare" not in now


def test_how_it_bills_is_changed_as_the_file_would_and_shown_as_it_has_it(admin: Client, tmp_path: Path) -> None:
    apply(tmp_path)
    shown = admin.get("/prices/policies/").context["forms"]["billing"].initial
    assert (shown["issuer"], shown["review"]) == ("AI-INFRA", "none")
    asked = {**shown, "legal_entity": "云算科技", "review": "four-eyes", "reopening": "two-persons",
             "holidays": "2099-10-01, 2099-10-02", "working_days": "2099-10-10", "cost_center_required": "on"}  # fmt: skip
    answer = looked(admin, "billing", **asked)
    assert BillingSetup.objects.get().review == "none"
    assert yaml.safe_load(answer.context["text"]) == {"billing": {
        "currency": "CNY", "zone": "Asia/Shanghai", "issuer": "AI-INFRA", "legal_entity": "云算科技", "review": "four-eyes",
        "reopening": "two-persons", "holidays": ["2099-10-01", "2099-10-02"], "working_days": ["2099-10-10"],
        "cost_center_required": "true", "gather_consumers_above": "40",
    }}  # fmt: skip
    saved(admin, answer)
    setup = BillingSetup.objects.get()
    assert (setup.review, setup.reopening, setup.legal_entity) == ("four-eyes", "two-persons", "云算科技")
    assert (setup.holidays, setup.working_days) == ([date(2099, 10, 1), date(2099, 10, 2)], [date(2099, 10, 10)])
    assert setup.cost_center_required
    assert AuditEntry.objects.filter(action="billing_setup_put").latest("id").actor == "adam"
    assert "reopening: two-persons" in unescape(admin.get("/prices/policies/").content.decode())


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("holidays", "tomorrow", "billing.holidays: must be a list of days such as 2026-10-01"),
        ("working_days", "2099-10-01", "billing.working_days: 2099-10-01 is no Saturday or Sunday: it is worked anyway"),
        ("zone", "Mars/Base", "Time zone of billing months 'Mars/Base': a time zone such as Asia/Shanghai"),
        ("zone", "UTC", "billing.zone: is Asia/Shanghai since the first period and cannot become UTC"),
    ],
)
def test_how_it_bills_refuses_what_the_file_would(
    admin: Client, tmp_path: Path, name: str, value: str, text: str
) -> None:
    apply(tmp_path)
    period_open(month="2026-10")
    shown = admin.get("/prices/policies/").context["forms"]["billing"].initial
    answer = looked(admin, "billing", **{**shown, name: value})
    assert (answer.status_code, text in unescape(answer.content.decode())) == (409, True)
    assert billing_declared(BillingSetup.objects.get())[name] != value


def test_the_review_of_drafts_is_not_ended_in_the_portal(admin: Client, tmp_path: Path) -> None:
    """Also not by a text that does not name it; what else it says is kept."""
    apply(tmp_path, billing={**SET_UP["billing"], "review": "four-eyes"})
    shown = admin.get("/prices/policies/").context["forms"]["billing"].initial
    refusal = "billing.review: four-eyes is ended by <code>manage.py apply</code> only, not in the portal"
    answer = looked(admin, "billing", **{**shown, "review": "none"})
    assert (answer.status_code, refusal in unescape(answer.content.decode())) == (409, True)
    for text in ("billing: {currency: CNY, zone: Asia/Shanghai, issuer: AI-INFRA}", "billing: {review: none}"):
        assert refusal in unescape(admin.post("/prices/policies/apply/", {"text": text}, follow=True).content.decode())
    saved(admin, looked(admin, "billing", **{**shown, "issuer": "AI-LAB"}))
    stored = BillingSetup.objects.get()
    assert (stored.review, stored.issuer) == ("four-eyes", "AI-LAB")


def test_what_a_form_does_not_show_goes_on_in_the_policy_that_follows(admin: Client, tmp_path: Path) -> None:
    apply(tmp_path, **SECTIONS)
    page = admin.get("/prices/policies/").content.decode()
    assert unescape(page).count("notebooks") == 1  # in the YAML
    saved(admin, looked(admin, "efficiency", **{**BANDS, "name": "bands-next", "valid_from": "2026-12-01"}))
    followed = EfficiencyPolicy.objects.get(name="bands-next")
    assert followed.classes == EfficiencyPolicy.objects.exclude(name="bands-next").get().classes != []


def test_interruptions_shared_cost_and_carbon_are_saved_as_the_file_would(admin: Client, tmp_path: Path) -> None:
    apply(tmp_path, **SECTIONS)
    saved(admin, looked(
        admin, "interruption", name="sla-2", valid_from="2026-12-01", preempted="team", node_lost="cap",
        node_lost_hours="2.5",
    ))  # fmt: skip
    assert InterruptionPolicy.objects.get(name="sla-2").rules == {
        "preempted": {"payer": "team"}, "node lost": {"payer": "cap", "hours": "2.5"},
    }  # fmt: skip
    rows = {
        "cluster": ["hq-1", ""], "accelerator": ["NVIDIA-H800", ""], "price_per_gpu_hour": ["6.0000", ""],
        "idle_method": ["proportional", "proportional"], "idle_shares": ["", ""],
        "cost": ["gateway", "datasets"], "amount_per_month": ["120.00", ""],
        "shared_method": ["fixed", "even"], "shared_shares": ["nlp: 0.6, cv: 0.4", ""],
    }  # fmt: skip
    saved(admin, looked(admin, "allocation", name="idle-2", valid_from="2026-12-01", **rows))
    rules = AllocationPolicy.objects.get(name="idle-2").rules
    assert [(row["price"], row["method"]) for row in rules["idle"]] == [("6.0000", "proportional")]
    assert [(row["name"], row["amount"], row["shares"]) for row in rules["shared"]] == [
        ("gateway", "120.00", {"cv": "0.4", "nlp": "0.6"}), ("datasets", "300.00", {}),
    ]  # fmt: skip
    saved(admin, looked(admin, "carbon", name="bj-2", valid_from="2026-12-01", region="CN-North", year="2023"))
    assert str(CarbonFactors.objects.get(cluster="bj-2").location_kg_per_kwh) == "0.636100"


def test_the_yaml_of_the_page_applies_and_changes_nothing(admin: Client, tmp_path: Path) -> None:
    apply(tmp_path, **SECTIONS)
    text = policies_text(policies_declared("Asia/Shanghai"))
    assert set(yaml.safe_load(text)) == set(SECTIONS)
    applied = policies_apply(text=text, name="page", actor="adam")
    assert (applied.changes, applied.unchanged) == ([], 4)
    assert "Nothing changes." in looked(admin, "yaml", text_of=text).content.decode()


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        ("efficiency", {**BANDS, "penalty": "much"}, "is not a decimal"),
        ("efficiency", {**BANDS, "hfu_below": "0.9"}, "must not be above mfu_above"),
        ("interruption", {"name": "x", "valid_from": "2026-12-01"}, "the policy says nothing"),
        ("interruption", {"name": "x", "valid_from": "2026-12-01", "preempted": "cap"}, "is missing"),
        ("allocation", {"name": "x", "valid_from": "2026-12-02", "cost": "gateway", "amount_per_month": "1",
                        "shared_method": "even", "shared_shares": ""}, "must be the start of a billing month"),
        ("allocation", {"name": "x", "valid_from": "2026-12-01", "cost": "gateway", "amount_per_month": "1",
                        "shared_method": "even", "shared_shares": "nlp: 1"}, "are given for fixed shares, and only there"),
        ("carbon", {"name": "hq-1", "valid_from": "2026-12-01"}, "give the region with its year"),
        ("yaml", {"text_of": "teams: []"}, "only efficiency_policies, interruption_policies"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_and_what_was_typed_stays(
    admin: Client, tmp_path: Path, kind: str, fields: dict[str, str], said: str
) -> None:
    apply(tmp_path)
    answer = looked(admin, kind, **fields)
    page = unescape(answer.content.decode())
    assert (answer.status_code, said in page) == (409, True)
    assert all(str(value) in page for value in fields.values())
    assert not AuditEntry.objects.filter(action__contains="polic").exists()


def test_only_who_may_operate_changes_a_policy_and_everybody_of_the_staff_reads_it(tmp_path: Path) -> None:
    apply(tmp_path, **SECTIONS)
    finance = signed_in(person("fin", "finance"))
    page = finance.get("/prices/policies/").content.decode()
    assert "sla-1" in page
    assert "/prices/policies/look/" not in page
    in_chinese = signed_in(User.objects.get(username="fin"), "zh-hans").get("/prices/policies/").content.decode()
    assert "CN-East 2023, 官方平均值" in in_chinese
    assert looked(finance, "carbon", name="x").status_code == 403
    assert signed_in(person("lea", "lead", team="nlp")).get("/prices/policies/").status_code == 403
    assert User.objects.count() == 2
