"""Webhooks: signed events of closes, documents, budgets and unusual days, each sent until it is taken, with one id."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from billing.budgets.models import Alert, Budget, Channel, CostAnomaly, WebhookEvent
from billing.budgets.services import (
    BudgetError,
    ChannelWish,
    channel_put,
    recipients_put,
    webhooks_deliver,
)
from billing.budgets.services.alerts import alert_fire
from billing.monitoring.state import deliveries_failed
from billing.setup.budgets import channels_text
from billing.tenancy.models import AuditEntry, Team
from tests.factories import allocation_record, apply, ingest_allocations, money, person, signed_in
from tests.factories.corrections import bill, credit, part, people
from tests.factories.months import OCTOBER_OVER
from tests.factories.threads import at_once

pytestmark = [pytest.mark.django_db, pytest.mark.filterwarnings("ignore:No directory at:UserWarning")]
KEY = bytes(range(32))
SECRET = "whsec_" + base64.b64encode(KEY).decode()
BEGUN = datetime(2026, 10, 1, tzinfo=UTC)
NOW = OCTOBER_OVER + timedelta(hours=1)
BLANK = {"url": "", "secret": "", "team": "", "digest_at": "", "quiet_from": "", "quiet_until": "", "language": ""}


class Receiver:
    """Keeps what it took and what it refused; `status` is what it answers."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.attempts: list[tuple[str, bytes]] = []
        self.status, self.port = 204, 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/secret-path"

    def take(self, headers: Any, body: bytes) -> None:
        """Check the signature as the specification has it: HMAC-SHA256 of id.timestamp.body."""
        signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{digest}"
        self.attempts.append((headers["webhook-id"], body))
        if self.status == 204:
            self.taken.append(json.loads(body))


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    state = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            status = state.status
            try:
                state.take(self.headers, self.rfile.read(int(self.headers["Content-Length"])))
            except AssertionError:
                status = 401
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def at_the_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("django.utils.timezone.now", lambda: BEGUN)


def hook(receiver: Receiver, *events: str, name: str = "erp", team: str = "") -> Channel:
    wish = ChannelWish(name, receiver.url, Team.objects.get(code=team) if team else None, secret=SECRET, events=events)
    channel_put(wish=wish, actor="ada")
    return Channel.objects.get(name=name)


def used(path: Path, **sections: Any) -> None:
    """nlp: ten devices for ten hours at 10.00 each, 1,000.00."""
    people()
    apply(path, **sections)
    end = "2026-10-10T10:00:00Z"
    ingest_allocations(allocation_record(quantity=10, ended_at=end, observed_until=end))


def test_a_close_and_each_document_are_sent_once_with_a_signature(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path)
    hook(receiver, "closed", "issued")
    assert webhooks_deliver(now=NOW) == 0
    bill()
    assert webhooks_deliver(now=NOW) == 2
    assert webhooks_deliver(now=NOW) == 0
    closed, issued = sorted(receiver.taken, key=lambda event: event["type"])
    assert (closed["type"], closed["data"]["month"]) == ("closed", "2026-10")
    assert closed["timestamp"] == OCTOBER_OVER.isoformat()
    assert issued["timestamp"] == OCTOBER_OVER.isoformat()
    data = issued["data"]
    assert {name: data[name] for name in ("document", "number", "team", "month", "currency", "total")} == {
        "document": "invoice", "number": "AI-INFRA-2026-000001", "team": "nlp", "month": "2026-10", "currency": "CNY",
        "total": "1000.00",
    }  # fmt: skip
    assert data["address"].endswith("/api/v1/invoices/AI-INFRA-2026-000001.json")
    assert [event["id"] for event in receiver.taken] == [identity for identity, _ in receiver.attempts]
    assert issued["id"].startswith("evt_")


def test_a_credit_note_is_a_document_that_names_what_it_corrects(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path)
    bill()
    channel = hook(receiver, "issued")
    webhooks_deliver(now=NOW)
    receiver.taken.clear()
    credit(part("50.00"))
    webhooks_deliver(now=NOW)
    (event,) = receiver.taken
    data = event["data"]
    assert (data["document"], data["total"], data["corrects"]) == ("credit", "-50.00", "AI-INFRA-2026-000001")
    assert channel.webhook_events.filter(status="sent").count() == 2


def test_what_happened_before_the_subscription_is_not_sent(tmp_path: Path, receiver: Receiver, monkeypatch: Any) -> None:
    used(tmp_path)
    bill()
    monkeypatch.setattr("django.utils.timezone.now", lambda: NOW)
    hook(receiver, "closed", "issued", "budget", "anomaly")
    assert webhooks_deliver(now=NOW) == 0
    assert receiver.attempts == []


def test_an_event_that_is_refused_comes_again_later_with_the_same_id_and_body(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path)
    hook(receiver, "issued")
    bill()
    receiver.status = 500
    for minutes in (0, 0.5, 1, 2, 3):  # again after 1 minute, then after 2
        assert webhooks_deliver(now=NOW + timedelta(minutes=minutes)) == 0
    (event,) = WebhookEvent.objects.all()
    assert (event.attempts, event.last_error) == (3, "erp: answered 500")
    assert deliveries_failed()["webhook"] == 1
    receiver.status = 204
    assert webhooks_deliver(now=NOW + timedelta(minutes=6)) == 0
    assert webhooks_deliver(now=NOW + timedelta(minutes=7)) == 1
    assert webhooks_deliver(now=NOW + timedelta(days=1)) == 0
    assert (len(receiver.attempts), len(set(receiver.attempts)), len(receiver.taken)) == (4, 1, 1)


def test_a_webhook_that_is_away_holds_up_no_other(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path)
    away = hook(receiver, "issued", name="away")
    Channel.objects.filter(pk=away.pk).update(url="http://127.0.0.1:1/hooks")
    hook(receiver, "issued")
    bill()
    assert webhooks_deliver(now=NOW) == 1
    assert WebhookEvent.objects.get(channel=away).last_error == "away: no answer (ConnectError)"


def test_a_redirect_is_not_followed(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path)
    hook(receiver, "closed")
    bill()
    receiver.status = 302
    webhooks_deliver(now=NOW)
    assert WebhookEvent.objects.get().last_error == "erp: answered 302"


def test_alerts_of_budgets_and_unusual_days_are_events_of_their_team(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path, budgets=[{"team": "nlp", "amount": "1000.00"}, {"team": "cv", "amount": "10.00"}])
    hook(receiver, "budget", "anomaly", team="nlp")
    for code in ("nlp", "cv"):
        team = Team.objects.get(code=code)
        facts: dict[str, Any] = {
            "team": team, "value": money("1000.00"), "data_time": NOW, "fired_at": NOW, "owner": "Ann Lee",
        }  # fmt: skip
        alert_fire(Alert(
            **facts, cause=f"t-{code}", kind="threshold", level="urgent", budget=Budget.objects.get(team=team),
            period="2026-10", basis="actual", percent=100, amount=money("1000.00"),
        ))
        finding = CostAnomaly.objects.create(
            team=team, kind="gpu", sku="NVIDIA-H800", day="2026-10-10", amount=money("1000.00"), median=money("150.00"),
            mad=money("50.00"), z=money("19.561"), basis="own", found_at=NOW,
        )  # fmt: skip
        alert_fire(Alert(
            **facts, cause=f"a-{code}", kind="anomaly", level="warning", finding=finding, period="2026-10-10", basis="own",
            amount=money("150.00"),
        ))
    assert webhooks_deliver(now=NOW) == 2
    found = {event["type"]: event["data"] for event in receiver.taken}
    assert {data["team"] for data in found.values()} == {"nlp"}
    budget = found["budget"]
    assert (budget["alert"], budget["percent"], budget["value"]) == ("threshold", 100, "1000.00")
    assert (budget["amount"], budget["currency"]) == ("1000.00", "CNY")
    assert (budget["period"], budget["owner"]) == ("2026-10", "Ann Lee")
    anomaly = found["anomaly"]
    assert (anomaly["sku"], anomaly["period"], anomaly["amount"]) == ("NVIDIA-H800", "2026-10-10", "150.00")


def test_events_that_wait_for_another_team_are_not_sent_to_the_new_one(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path)
    hook(receiver, "issued")
    bill()
    receiver.status = 500
    webhooks_deliver(now=NOW)
    hook(receiver, "issued", team="cv")
    receiver.status = 204
    assert webhooks_deliver(now=NOW + timedelta(days=1)) == 0
    assert receiver.taken == []


@pytest.mark.django_db(transaction=True)
def test_many_workers_at_once_send_each_event_once(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path)
    hook(receiver, "closed", "issued")
    bill()
    assert sum(at_once(*[lambda: webhooks_deliver(now=NOW)] * 6)) + webhooks_deliver(now=NOW) == 2
    assert sorted(event["type"] for event in receiver.taken) == ["closed", "issued"]


@pytest.mark.parametrize(("facts", "said"), [
    ({"events": ("paid",)}, "event 'paid' is none of closed, issued, budget, anomaly"),
    ({"url": "json://erp/hooks"}, "the url of a webhook must be like https://erp.example.com/hooks"),
    ({"url": "https:///hooks"}, "the url of a webhook must be like https://erp.example.com/hooks"),
    ({"secret": ""}, "the secret of a webhook must be whsec_ and 24 to 64 bytes in Base64"),
    ({"secret": "whsec_c2hvcnQ="}, "the secret of a webhook must be whsec_ and 24 to 64 bytes in Base64"),
    ({"secret": SECRET.removeprefix("whsec_")}, "the secret of a webhook must be whsec_ and 24 to 64 bytes in Base64"),
    ({"events": ()}, "its url is no address that Apprise knows"),
])  # fmt: skip
def test_a_webhook_that_cannot_work_is_refused_by_name(tmp_path: Path, facts: dict[str, Any], said: str) -> None:
    apply(tmp_path)
    wish = {"name": "erp", "url": "https://erp.example.com/hooks", "secret": SECRET, "events": ("issued",), **facts}
    with pytest.raises(BudgetError) as refused:
        channel_put(wish=ChannelWish(**wish), actor="ada")
    assert str(refused.value) == f"channel 'erp': {said}"


def test_a_webhook_is_no_recipient_of_a_budget(tmp_path: Path, receiver: Receiver) -> None:
    apply(tmp_path, budgets=[{"team": "nlp", "amount": "1000.00"}])
    hook(receiver, "budget")
    with pytest.raises(BudgetError, match="recipient 'erp': is a webhook, which gets its events by itself"):
        recipients_put(budget=Budget.objects.get(), names=["erp"], actor="ada")


def test_the_file_makes_a_webhook_and_keeps_its_secrets_where_it_names_none(tmp_path: Path) -> None:
    url = "https://erp.example.com/secret-path"
    apply(tmp_path, channels=[{"name": "erp", "url": url, "secret": SECRET, "events": ["issued", "closed"]}])
    channel = Channel.objects.get()
    assert (channel.url, channel.secret, channel.event_names) == (url, SECRET, "closed, issued")
    text = channels_text([channel])
    assert (url in text, SECRET in text, "events" in text) == (False, False, True)
    apply(tmp_path, channels=[{"name": "erp", "events": ["issued"]}])
    channel.refresh_from_db()
    assert (channel.url, channel.secret, channel.event_names) == (url, SECRET, "issued")
    assert SECRET not in str(list(AuditEntry.objects.values_list("detail", flat=True)))


def test_the_page_makes_tests_and_shows_a_webhook_without_its_secrets(tmp_path: Path, receiver: Receiver) -> None:
    used(tmp_path)
    admin = signed_in(person("ada", "admin"))
    wish = {**BLANK, "name": "erp", "url": receiver.url, "secret": SECRET, "events": ["closed", "issued"]}
    assert admin.post("/budgets/channels/store/", wish).status_code == 302
    channel = Channel.objects.get(name="erp")
    assert admin.post(f"/budgets/channels/{channel.pk}/test/").status_code == 200
    (event,) = receiver.taken
    assert (event["type"], event["data"]) == ("test", {"channel": "erp", "actor": "ada"})
    bill()
    receiver.status = 410
    webhooks_deliver(now=NOW)
    page = admin.get("/budgets/channels/").content.decode()
    assert "Webhook: closed, issued" in page
    assert "Events wait: erp: answered 410" in page
    assert ("secret-path" in page, SECRET in page) == (False, False)
    assert timezone.now() == BEGUN
