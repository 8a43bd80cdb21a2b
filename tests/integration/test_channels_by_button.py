"""Channels of alerts, budgets of leads and the YAML of both, by button."""

from decimal import Decimal
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from billing.budgets.models import Alert, Budget, Channel
from billing.budgets.services.alerts import alert_fire
from billing.budgets.services.deliveries import alerts_deliver
from billing.setup.apply import set_up_apply
from billing.setup.budgets import budgets_text, channels_text
from billing.setup.owners import owners_apply
from billing.tenancy.models import AuditEntry
from tests.factories import SET_UP, apply, person, signed_in
from tests.receivers import webhook

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
BLANK = {"url": "", "team": "", "digest_at": "", "quiet_from": "", "quiet_until": "", "language": ""}


def test_a_channel_is_stored_tested_and_never_shows_its_address(tmp_path: Path) -> None:
    apply(tmp_path)
    admin = signed_in(person("ada", "admin"))
    with webhook() as hook:
        answer = admin.post("/budgets/channels/store/", {**BLANK, "name": "ops", "url": hook.url, "language": "en"})
        assert (answer.status_code, answer.headers["Location"]) == (302, "/budgets/channels/")
        channel = Channel.objects.get(name="ops")
        page = admin.get("/budgets/channels/").content.decode()
        assert "ops" in page
        assert "secret-path" not in page
        answer = signed_in(person("fin", "finance")).post(f"/budgets/channels/{channel.pk}/test/")
        assert (answer.status_code, len(hook.texts)) == (200, 1)
        assert hook.texts[0].startswith("Suanpan: test message\nfin sent this to see whether the channel ops works.")
        assert "was sent" in answer.content.decode()
        hook.failing = True
        refused = admin.post(f"/budgets/channels/{channel.pk}/test/")
        assert (refused.status_code, "did not take the message" in refused.content.decode()) == (409, True)
        assert "secret-path" not in refused.content.decode()
    assert list(AuditEntry.objects.filter(action="channel_test").values_list("actor", "subject")) == [("fin", "ops")]


def test_a_mail_address_of_somebody_who_left_is_marked(tmp_path: Path) -> None:
    """Lin left, with two accounts of that address; Ada is there, and the address of the list is of no account."""
    apply(tmp_path)
    for name in ("Lin@example.com", "ada@example.com", "list@example.com"):
        Channel.objects.create(name=name, mail=name)
    for name, address, active in (("lin", "lin@example.com", False), ("lin2", "LIN@example.com", False),
                                  ("ada", "ada@example.com", True), ("ada-old", "ada@example.com", False)):  # fmt: skip
        account = person(name, *(["admin"] if name == "ada" else []))
        account.email, account.is_active = address, active
        account.save()
    page = signed_in(User.objects.get(username="ada")).get("/budgets/channels/").content.decode()
    rows = page.split('<th scope="row" class="name">')[1:]
    assert [row.split("<", 1)[0].strip() for row in rows if "Account closed" in row] == ["Lin@example.com"]


def test_a_channel_is_changed_without_its_address(tmp_path: Path) -> None:
    apply(tmp_path, channels=[{"name": "ops", "url": "json://127.0.0.1:1/x"}])
    admin = signed_in(person("ada", "admin"))
    answer = admin.post("/budgets/channels/store/", {**BLANK, "name": "ops", "digest_at": "08:30", "team": "nlp"})
    assert answer.status_code == 302
    stored = Channel.objects.get(name="ops")
    assert (stored.url, f"{stored.digest_at:%H:%M}", stored.team.code) == ("json://127.0.0.1:1/x", "08:30", "nlp")
    new = admin.post("/budgets/channels/store/", {**BLANK, "name": "other"})
    assert (new.status_code, "no address that Apprise knows" in new.content.decode()) == (409, True)


def test_the_audit_log_says_that_a_channel_has_another_address_and_not_which(tmp_path: Path) -> None:
    apply(tmp_path, channels=[{"name": "ops", "url": "json://127.0.0.1:1/secret-path"}])
    admin = signed_in(person("ada", "admin"))
    for changed in ({"url": "json://127.0.0.1:2/secret-path"}, {"digest_at": "08:30"}):
        assert admin.post("/budgets/channels/store/", {**BLANK, "name": "ops", **changed}).status_code == 302
    details = [entry.detail for entry in AuditEntry.objects.filter(action="channel_put").order_by("id")]
    assert [detail.get("url") for detail in details] == [None, "(changed)", None]
    assert "secret-path" not in str(details)


def test_a_channel_that_is_given_to_one_team_hears_nothing_more_of_others(tmp_path: Path) -> None:
    budgets = [{"team": code, "amount": "1.00", "recipients": ["shared"]} for code in ("nlp", "cv")]
    with webhook() as hook:
        apply(tmp_path, channels=[{"name": "shared", "url": hook.url, "language": "en"}], budgets=budgets)
        alerted = [alert(budget) for budget in Budget.objects.select_related("team").order_by("team__code")]
        assert signed_in(person("ada", "admin")).post(
            "/budgets/channels/store/", {**BLANK, "name": "shared", "team": "cv", "language": "en"}
        ).status_code == 302  # fmt: skip
        alerted += [alert(budget, "later") for budget in Budget.objects.select_related("team").order_by("team__code")]
        assert alerted == [True] * 4
        alerts_deliver(now=timezone.now())
    assert len(hook.texts) == 1
    assert ("cv month" in hook.texts[0], "nlp" in hook.texts[0]) == (True, False)
    assert {row.team.code: [channel.name for channel in row.channels.all()] for row in Budget.objects.all()} == {
        "cv": ["shared"], "nlp": [],
    }  # fmt: skip
    (entry,) = AuditEntry.objects.filter(action="budget_recipients_put")
    detail = (entry.detail["before"], entry.detail["after"])
    assert (entry.actor, entry.subject, detail) == ("ada", "nlp month", (["shared"], []))


def alert(budget: Budget, what: str = "spent") -> bool:
    """An alert about a budget, as a threshold fires it."""
    now = timezone.now()
    return alert_fire(Alert(
        cause=f"{what} {budget.pk}", kind="threshold", level="urgent", basis="actual", percent=100, value=Decimal(5),
        period="2026-10", team=budget.team, budget=budget, amount=budget.amount, owner=budget.team.code, data_time=now,
        fired_at=now,
    ))  # fmt: skip


def test_the_yaml_of_budgets_and_channels_is_what_apply_finds_unchanged(tmp_path: Path) -> None:
    channels = [
        {"name": "ops", "url": "json://127.0.0.1:1/x", "team": "nlp", "digest_at": "08:30", "language": "zh-hans"},
        {"name": "night", "url": "json://127.0.0.1:1/y", "quiet_from": "22:00", "quiet_until": "07:00"},
    ]  # fmt: skip
    budgets = [
        {"team": "nlp", "amount": "1000.00", "name": "Everything: NLP", "owner": "No",
         "recipients": ["ops", "li@example.org"], "thresholds": [60, 90],
         "valid_from": "2026-10-01", "valid_until": "2027-01-01"},
        {"team": "cv", "period": "plan", "amounts": {"2026-10": "5.00", "2026-11": "7.50"}, "model": "llama-4-*",
         "reservation": "0.2500", "forecast_thresholds": [], "commitment_thresholds": [100],
         "ladder": [{"at": 80, "action": "notify"},
                    {"at": 100, "action": "rate_limit", "tokens_per_minute": 500, "floor": 50}]},
    ]  # fmt: skip
    apply(tmp_path, channels=channels, budgets=budgets)
    path = tmp_path / "shown.yaml"
    path.write_text(channels_text(Channel.objects.all()) + budgets_text(Budget.objects.all(), SET_UP["billing"]["zone"]))
    assert "json://" not in path.read_text()
    applied = set_up_apply(path=path, actor="ann")
    assert (applied.changes, applied.unchanged) == ([], 4)


def test_the_pages_of_budgets_and_contacts_show_their_yaml(tmp_path: Path) -> None:
    contact = {"team": "nlp", "address": "li@example.org", "valid_from": "2026-10-01"}
    apply(tmp_path, budgets=[{"team": "nlp", "amount": "1000.00"}], contacts=[contact])
    finance = signed_in(person("fin", "finance"))
    assert "amount: &#x27;1000.00&#x27;" in finance.get("/budgets/").content.decode()
    assert "address: li@example.org" in finance.get("/mails/").content.decode()


def test_a_lead_makes_a_budget_for_the_own_team_and_for_no_other(tmp_path: Path) -> None:
    apply(tmp_path)
    lead = signed_in(person("lea", "lead", team="nlp"))
    page = lead.get("/budgets/new/").content.decode()
    assert 'value="nlp"' in page
    assert 'value="cv"' not in page
    assert 'href="/budgets/new/"' in lead.get("/budgets/").content.decode()
    wish = {"name": "Our part", "period": "month", "amount": "1,000.00", "namespace": "nlp-*", "thresholds": "80"}
    assert lead.post("/budgets/new/", {**wish, "team": "cv"}).status_code == 400
    assert lead.post("/budgets/new/", {**wish, "team": "nlp"}).status_code == 302
    made = Budget.objects.get()
    assert (made.team.code, made.amount, made.namespace) == ("nlp", Decimal("1000.00"), "nlp-*")
    assert AuditEntry.objects.get(action="budget_put").actor == "lea"
    assert signed_in(person("vic", "viewer", team="nlp")).get("/budgets/new/").status_code == 403


def test_a_set_up_text_of_the_portal_may_declare_channels_and_budgets_too(tmp_path: Path) -> None:
    apply(tmp_path)
    owners_apply(text="budgets:\n- {team: nlp, amount: '5.00'}\n", name="form", actor="ada")
    assert Budget.objects.get().amount == Decimal("5.00")
