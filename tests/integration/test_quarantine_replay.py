"""Out of quarantine: corrected or as it came, through the code of the door, answered for by somebody."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from billing.tenancy.models import AuditEntry, Membership
from billing.tenancy.tokens import api_token_create
from billing.usage.models import GpuAllocation, QuarantinedRecord
from billing.usage.scope import EpochFilter
from billing.usage.services import ReplayError, Reporter, quarantine_dismiss, quarantine_replay, tokens_ingest
from billing.usage.services.replay import refusal_of
from billing.usage.store.sums import token_sums
from metering.intervals import Interval
from metering.records import TokenUsage, decode_batch
from tests import factories
from tests.factories import AFTER, allocation_record, apply, ingest_allocations, ingest_tokens, token_record

pytestmark = pytest.mark.django_db
OCTOBER = Interval(*factories.SHANGHAI_OCTOBER)
def replay(
    entry: QuarantinedRecord, corrected: dict[str, Any] | str | None = None, reason: str = "typo"
) -> QuarantinedRecord:
    text = json.dumps(corrected) if isinstance(corrected, dict) else corrected
    return quarantine_replay(record_id=entry.pk, actor="lin", reason=reason, now=AFTER, corrected=text)


def output_tokens() -> int:
    return sum(row.output_tokens for row in token_sums([OCTOBER], EpochFilter()))


@pytest.fixture
def bad() -> QuarantinedRecord:
    """A record with a negative count, in quarantine."""
    ingest_tokens(token_record(output_tokens=-1, reasoning_output_tokens=0))
    return QuarantinedRecord.objects.get()


def test_a_corrected_record_is_usage_and_says_who_when_why_and_what(bad: QuarantinedRecord) -> None:
    corrected = token_record(output_tokens=77, reasoning_output_tokens=0)
    replay(bad, corrected)
    bad.refresh_from_db()
    assert output_tokens() == 77
    assert (bad.status, bad.resolved_by, bad.resolution, bad.resolved_at) == ("replayed", "lin", "typo", AFTER)
    assert json.loads(bad.corrected) == corrected
    assert json.loads(bad.record)["output_tokens"] == -1
    entry = AuditEntry.objects.get(action="quarantine_replay")
    assert (entry.actor, entry.subject) == ("lin", "usage/tokens litellm-hq/req-1")
    assert entry.detail == {"record": bad.pk, "reason": "typo", "corrected": True, "new": True}


def test_what_is_refused_again_stays_and_leaves_no_trace(bad: QuarantinedRecord) -> None:
    for corrected in (token_record(output_tokens=-2), {"id": "x"}, "{", "[]", "17", '{"id": "a\\u0000"}'):
        with pytest.raises(ReplayError, match="not valid"):
            replay(bad, corrected)
    assert QuarantinedRecord.objects.count() == 1
    assert QuarantinedRecord.objects.get().status == "open"
    assert (output_tokens(), AuditEntry.objects.filter(action="quarantine_replay").count()) == (0, 0)


def test_nobody_replays_without_a_reason_or_twice(bad: QuarantinedRecord) -> None:
    corrected = token_record(output_tokens=77, reasoning_output_tokens=0)
    with pytest.raises(ReplayError, match="needs a reason"):
        replay(bad, corrected, reason=" ")
    replay(bad, corrected)
    with pytest.raises(ReplayError, match="is replayed since"):
        replay(bad, corrected)
    with pytest.raises(ValueError, match="taken into the ledger"):
        quarantine_dismiss(record_id=bad.pk, actor="lin", resolution="no usage")
    assert output_tokens() == 77


def test_a_dismissed_record_is_not_replayed(bad: QuarantinedRecord) -> None:
    quarantine_dismiss(record_id=bad.pk, actor="lin", resolution="a test")
    with pytest.raises(ReplayError, match="is dismissed"):
        replay(bad, token_record(output_tokens=77, reasoning_output_tokens=0))


def test_a_conflict_is_a_conflict_again_and_taken_under_an_id_of_its_own() -> None:
    ingest_tokens(token_record(output_tokens=100))
    ingest_tokens(token_record(output_tokens=60))
    entry = QuarantinedRecord.objects.get(reason="conflict")
    with pytest.raises(ReplayError, match=r"refused again: id 'req-1' .* was reported before with other content"):
        replay(entry)
    assert QuarantinedRecord.objects.count() == 1
    replay(entry, token_record(id="req-1-second", output_tokens=60), reason="two requests shared an id")
    assert output_tokens() == 160


def test_what_lay_in_the_future_is_taken_when_somebody_says_so() -> None:
    clock = datetime(2026, 10, 15, 4, tzinfo=UTC)
    limited = Reporter("gateway", "usage/tokens", future_limit_s=60)
    ingest_tokens(token_record(time="2026-10-15T05:00:00Z"), reporter=limited, now=clock)
    entry = QuarantinedRecord.objects.get(reason="future")
    quarantine_replay(record_id=entry.pk, actor="lin", reason="its clock", now=clock + timedelta(hours=2))
    entry.refresh_from_db()
    assert (entry.status, entry.corrected, output_tokens()) == ("replayed", "", 100)


def test_the_page_names_the_field_that_lay_in_the_future() -> None:
    clock = datetime(2026, 10, 10, 1, tzinfo=UTC)
    agent = Reporter("agent", "usage/gpu-allocations", future_limit_s=60)
    ingest_allocations(allocation_record(), reporter=agent, now=clock)
    entry = QuarantinedRecord.objects.get(reason="future")
    assert refusal_of(entry, clock) == "ended_at 2026-10-10T02:37:13+00:00 lies in the future"


def test_what_was_reported_rightly_meanwhile_is_a_duplicate_and_counts_once(bad: QuarantinedRecord) -> None:
    right = token_record(output_tokens=77, reasoning_output_tokens=0)
    ingest_tokens(right)
    replay(bad, right)
    assert output_tokens() == 77
    assert AuditEntry.objects.get(action="quarantine_replay").detail["new"] is False


# The key of a corrected record


def test_a_corrected_record_keeps_its_key_so_that_the_right_one_sent_later_is_not_billed_beside_it(
    bad: QuarantinedRecord,
) -> None:
    for changed in ({"id": "req-1-fixed"}, {"source": "litellm-2"}):
        with pytest.raises(ReplayError, match=r"must keep its (id 'req-1'|source 'litellm-hq')"):
            replay(bad, token_record(output_tokens=77, reasoning_output_tokens=0, **changed))
    replay(bad, token_record(output_tokens=77, reasoning_output_tokens=0))
    assert ingest_tokens(token_record(output_tokens=77, reasoning_output_tokens=0)).duplicates == 1
    assert ingest_tokens(token_record(output_tokens=78, reasoning_output_tokens=0)).conflicts == 1
    assert output_tokens() == 77


def test_what_lay_in_the_future_keeps_its_key_too() -> None:
    limited = Reporter("gateway", "usage/tokens", future_limit_s=60)
    ingest_tokens(token_record(time="2026-11-15T05:00:00Z"), reporter=limited)
    with pytest.raises(ReplayError, match="must keep its id 'req-1'"):
        replay(QuarantinedRecord.objects.get(), token_record(id="other"))


def test_a_key_that_is_no_name_may_be_corrected_since_nothing_ever_arrives_under_it() -> None:
    wrong = token_record(id="req\n1")
    ingest_tokens(wrong)
    entry = QuarantinedRecord.objects.get()
    with pytest.raises(ReplayError, match="must keep its source 'litellm-hq'"):
        replay(entry, token_record(id="req-1", source="other"))
    replay(entry, token_record(id="req-1"))
    assert [len(ingest_tokens(wrong).refusals), ingest_tokens(token_record(id="req-1")).duplicates] == [1, 1]
    assert (output_tokens(), QuarantinedRecord.objects.count()) == (100, 1)


@pytest.mark.parametrize("wrong", ['{"id": "req-1", "source": "litellm-hq", "output_tokens": NaN}',
                                   '{"id": "req-1", "source": "litellm-hq", "x": %s}' % ("[" * 1500 + "]" * 1500),
                                   '{"id": "req-1", "source": "litellm-hq", "id": "req-2"}'])  # fmt: skip
def test_a_record_that_cannot_be_read_keeps_the_key_that_can(wrong: str) -> None:
    batch: Any = decode_batch(TokenUsage, [wrong.encode()])
    tokens_ingest(records=[], rejected=batch.rejected, reporter=Reporter("tests", "usage/tokens"), now=AFTER)
    entry = QuarantinedRecord.objects.get()
    with pytest.raises(ReplayError, match="must keep its id 'req-1'"):
        replay(entry, token_record(id="req-3"))
    replay(entry, token_record())
    assert output_tokens() == 100


def test_a_corrected_allocation_keeps_its_id_so_that_the_right_one_sent_later_is_not_billed_beside_it() -> None:
    ingest_allocations(allocation_record(quantity=0))
    entry = QuarantinedRecord.objects.get()
    with pytest.raises(ReplayError, match="must keep its allocation_id 'alloc-1'"):
        replay(entry, allocation_record(quantity=4, allocation_id="alloc-1b"))
    replay(entry, allocation_record(quantity=4))
    assert ingest_allocations(allocation_record(quantity=4)).duplicates == 1
    assert ingest_allocations(allocation_record(quantity=8)).conflicts == 1
    assert GpuAllocation.objects.get().quantity == 4


# Through the doors


@pytest.fixture
def client(tmp_path: Path) -> Client:
    apply(tmp_path)
    return Client()


def bearer(*scopes: str, **facts: Any) -> dict[str, str]:
    return {"Authorization": f"Bearer {api_token_create(name='-'.join(scopes), scopes=list(scopes), actor='t', **facts)[1]}"}


EVENT = {
    "specversion": "1.0", "type": "litellm_tokens", "id": "r-1", "source": "litellm-proxy", "subject": "nlp-key-1",
    "time": "2026-10-15T04:00:00Z", "data": {"model": "m", "prompt_tokens": 9, "completion_tokens": -5},
}  # fmt: skip


def test_an_event_is_corrected_in_the_form_in_which_quarantine_shows_it(client: Client) -> None:
    kind = "application/cloudevents+json"
    answer = client.post("/api/v1/events", json.dumps(EVENT), content_type=kind, headers=bearer("usage:write"))
    assert answer.status_code == 400
    shown = client.get("/api/v1/quarantine?status=open", headers=bearer("usage:read")).json()["results"]
    fields = json.loads(shown[0]["record"])
    fields["data"]["completion_tokens"] = 5
    decide = {"action": "replay", "reason": "a sign", "record": fields}
    done = client.post(
        f"/api/v1/quarantine/{shown[0]['id']}", decide, content_type="application/json", headers=bearer("usage:correct")
    )
    assert (done.status_code, done.json()["status"]) == (200, "replayed")
    assert done.json()["resolved_by"] == "token:usage:correct"
    assert output_tokens() == 5


def test_a_litellm_payload_is_corrected_as_it_is_shown(client: Client) -> None:
    payload = {
        "id": "chatcmpl-1", "litellm_call_id": "c-1", "call_type": "acompletion", "status": "success",
        "startTime": 1792036800.0, "model": "gpt-4", "prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10,
        "metadata": {"user_api_key_hash": None},
    }  # fmt: skip
    client.post("/api/v1/usage/litellm", [payload], content_type="application/json", headers=bearer("usage:write"))
    entry = QuarantinedRecord.objects.get()
    with pytest.raises(ReplayError, match="payload with its metadata is missing"):
        replay(entry, {"payload": 1})
    fields = json.loads(entry.record)
    fields["payload"]["metadata"]["user_api_key_team_id"] = "nlp-key-1"
    other = json.loads(json.dumps(fields).replace("c-1", "c-2"))
    with pytest.raises(ReplayError, match="must keep its id"):
        replay(entry, other)
    replay(entry, fields)
    assert output_tokens() == 3


def test_the_api_asks_for_a_scope_a_reason_and_a_whole_installation(client: Client, bad: QuarantinedRecord) -> None:
    from billing.tenancy.models import Team

    path = f"/api/v1/quarantine/{bad.pk}"
    decide = {"action": "dismiss", "reason": "a test"}

    def post(headers: dict[str, str], body: dict[str, Any], path: str = path) -> Any:
        return client.post(path, body, content_type="application/json", headers=headers)

    assert post(bearer("usage:write", "usage:read"), decide).status_code == 403
    bound = bearer("usage:correct", "usage:read", team=Team.objects.get(code="nlp"))
    assert post(bound, decide).status_code == 403
    assert client.get("/api/v1/quarantine", headers=bound).status_code == 403
    right = bearer("usage:correct")
    assert post(right, {"action": "dismiss"}).status_code == 400
    assert post(right, {"action": "forget", "reason": "x"}).status_code == 400
    assert post(right, decide, "/api/v1/quarantine/999999").status_code == 404
    refused = post(right, {"action": "replay", "reason": "x"})
    assert (refused.status_code, refused["Content-Type"]) == (409, "application/problem+json")
    assert "output_tokens -1" in refused.json()["detail"]
    assert post(right, decide).json()["status"] == "dismissed"
    assert client.get("/api/v1/quarantine?status=gone", headers=bearer("usage:read")).status_code == 400


def test_an_administrator_corrects_on_the_page_and_finance_may_only_look(client: Client, bad: QuarantinedRecord) -> None:
    for name, role in (("ada", Membership.Role.ADMIN), ("fin", Membership.Role.FINANCE)):
        user = User.objects.create_user(name, password="x")
        Membership.objects.create(user=user, role=role, team=None)
    form = {"action": "replay", "reason": "typo", "record": bad.record}
    client.force_login(User.objects.get(username="fin"))
    assert "name=\"action\"" not in client.get(f"/quarantine/{bad.pk}/").content.decode()
    assert client.post(f"/quarantine/{bad.pk}/", form).status_code == 403
    client.force_login(User.objects.get(username="ada"))
    assert f'href="/quarantine/{bad.pk}/"' in client.get("/quarantine/").content.decode()
    assert "name=\"action\"" in client.get(f"/quarantine/{bad.pk}/").content.decode()
    page = client.post(f"/quarantine/{bad.pk}/", form)
    assert (page.status_code, "stays in quarantine" in page.content.decode()) == (409, True)
    form["record"] = json.dumps(token_record(output_tokens=77, reasoning_output_tokens=0))
    assert client.post(f"/quarantine/{bad.pk}/", form).status_code == 302
    assert output_tokens() == 77
    assert "typo" in client.get("/quarantine/?status=replayed").content.decode()
    assert client.post(f"/quarantine/{bad.pk}/", {"action": "x", "reason": "y"}).status_code == 404


def test_an_allocation_reported_beyond_a_change_of_share_is_shown_once_and_blocks() -> None:
    """The new agent of a lost volume reports every minute; the entry counts, and does not multiply."""
    changed = "share of a claim changed"
    start, end = "2026-10-10T00:00:00Z", "2026-10-10T00:00:00Z"
    ingest_allocations(allocation_record(1, started_at=start, ended_at=end, end_reason=changed, end_rule=changed))
    for minute in ("00:01", "00:02", "00:03"):
        seen = f"2026-10-10T{minute}:00Z"
        outcome = ingest_allocations(allocation_record(1, started_at=start, ended_at=None, observed_until=seen))
        assert (outcome.accepted, outcome.duplicates, outcome.conflicts) == (0, 0, 1)
    entry = QuarantinedRecord.objects.get()
    assert (entry.reason, entry.times_received, entry.status) == ("conflict", 3, "open")
    assert "reports time after 2026-10-10T00:00:00+00:00, when a change of share ended it" in entry.error
    assert GpuAllocation.objects.get().ended_at == datetime(2026, 10, 10, tzinfo=UTC)
