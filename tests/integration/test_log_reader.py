"""From a gateway's log through reader, spool and door into the ledger: once, with the unknown in quarantine."""

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.closing.completeness import in_quarantine
from billing.closing.exceptions import Context
from billing.invoices.models import BillingPeriod
from billing.rating.assessment import RatingResult
from billing.tenancy.tokens import api_token_create
from billing.usage.models import AgentWatermark, QuarantinedRecord
from billing.usage.reconciliation import sequence_gaps
from billing.usage.services import quarantine_replay
from metering.__main__ import main
from metering.intervals import Interval
from tests.factories import apply, person, signed_in
from tests.stored_rows import query

pytestmark = pytest.mark.django_db(transaction=True)


def line(number: int, **changed: Any) -> str:
    fields = {"start_time": f"2026-10-05T10:00:{number:02}Z", "x-request-id": f"r{number}", "consumer": "team-a",
              "response_code": 200, "gen_ai.request.model": "qwen", "gen_ai.usage.input_tokens": 100 + number,
              "gen_ai.usage.cache_read.input_tokens": 10, "gen_ai.usage.output_tokens": 7}  # fmt: skip
    return json.dumps({**fields, **changed}) + "\n"


def ledger() -> list[tuple[Any, ...]]:
    return query(
        """SELECT d.source, d.consumer, d.model, d.status, sum(requests)::int, sum(input_tokens)::int,
                  sum(cache_read_input_tokens)::int, sum(output_tokens)::int
           FROM token_usage_hour t JOIN token_dimension d ON d.id = t.dimension GROUP BY 1, 2, 3, 4 ORDER BY 4"""
    )


def of_envoy(tmp_path: Path, live_server: Any) -> list[str]:
    """The command that reads logs of an Envoy, without its state and its files."""
    _, presented = api_token_create(name="reader", scopes=["usage:write"], actor="tests", source="envoy-hq")
    token = tmp_path / "token"
    token.write_text(presented)
    return ["tokens", "--format", "envoy", "--source", "envoy-hq", "--endpoint", live_server.url, "--token-file", str(token)]


def test_a_log_is_in_the_ledger_once_however_often_it_is_read(tmp_path: Path, live_server: Any) -> None:
    log, read = tmp_path / "access.log", of_envoy(tmp_path, live_server)
    nothing = {"gen_ai.usage.input_tokens": None, "gen_ai.usage.output_tokens": None,
               "gen_ai.usage.cache_read.input_tokens": None}  # fmt: skip
    lines = [line(number) for number in range(10)]
    lines += [line(10, **nothing, response_code=503), line(11, **nothing), "garbage\n"]
    log.write_text("".join(lines))
    reported = [("envoy-hq", "team-a", "qwen", "200", 10, 1045, 100, 70), ("envoy-hq", "team-a", "qwen", "503", 1, 0, 0, 0)]
    assert main([*read, "--state", str(tmp_path / "one"), str(log)]) == 3, "a bad line and a request without counts"
    assert ledger() == reported
    (unknown,) = QuarantinedRecord.objects.all()
    assert unknown.reason == "invalid"
    assert "input_tokens" in unknown.error
    assert json.loads(unknown.record)["id"] == "r11:2026-10-05T10:00:11Z"
    assert main([*read, "--state", str(tmp_path / "one"), str(log)]) == 3
    assert main([*read, "--state", str(tmp_path / "two"), str(log)]) == 3
    assert ledger() == reported
    assert not AgentWatermark.objects.exists(), "one reading is no watching"


def test_usage_that_nobody_can_read_waits_in_quarantine_with_its_reason_until_somebody_adds_the_counts(
    tmp_path: Path, live_server: Any
) -> None:
    _, presented = api_token_create(name="reader", scopes=["usage:write"], actor="tests", source="own")
    token, log, mapping = tmp_path / "token", tmp_path / "own.log", tmp_path / "mapping.yaml"
    token.write_text(presented)
    mapping.write_text("{id: [rid], time: ts, consumer: who, model: llm, usage: usage, status: code}")
    usage = {"prompt_tokens": 8, "completion_tokens": 20, "total_tokens": 130, "note": "the-prompt-nobody-may-read"}
    log.write_text(json.dumps({"rid": "r1", "ts": "2026-10-05T10:00:00Z", "who": "team-a", "llm": "gemini", "code": 200,
                               "usage": usage}) + "\n")  # fmt: skip
    read = ["tokens", "--format", "json", "--mapping", str(mapping), "--source", "own", "--endpoint", live_server.url,
            "--token-file", str(token), str(log)]  # fmt: skip
    for state in ("one", "two"):
        assert main([*read, "--state", str(tmp_path / state)]) == 3
    (entry,) = QuarantinedRecord.objects.all()
    assert (entry.error, entry.times_received) == (
        "OpenAI chat: total 130 is not input 8 + output 20 (Object missing required field `input_tokens`)", 2,
    )  # fmt: skip
    kept = json.loads(entry.record)
    assert kept["attributes"]["usage"] == {"prompt_tokens": 8, "completion_tokens": 20, "total_tokens": 130, "note": ""}
    october = BillingPeriod(start=datetime(2026, 10, 1, tzinfo=UTC), end=datetime(2026, 11, 1, tzinfo=UTC))
    (exception,) = in_quarantine(Context(october, october.end, RatingResult()))
    assert (exception.kind, exception.blocks) == ("quarantine", True)
    assert ledger() == []
    counts = {"input_tokens": 8, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0, "output_tokens": 122,
              "reasoning_output_tokens": 102}  # fmt: skip
    quarantine_replay(
        record_id=entry.pk, actor="lin", reason="thoughts are in the total", now=datetime(2026, 11, 2, tzinfo=UTC),
        corrected=json.dumps({**kept, **counts}),
    )  # fmt: skip
    assert ledger() == [("own", "team-a", "gemini", "200", 1, 8, 0, 122)]


@pytest.mark.filterwarnings("ignore:No directory at:UserWarning")
def test_requests_paid_by_the_call_are_one_exception_of_their_own(
    tmp_path: Path, live_server: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three pictures for 50,000 of quota each, an answer that the provider did not count, and one that is billed."""
    apply(tmp_path)
    _, presented = api_token_create(name="reader", scopes=["usage:write"], actor="tests", source="new-api-hq")
    token, table = tmp_path / "token", tmp_path / "logs.csv"
    token.write_text(presented)
    rows = [(1, "gpt-4o", 5, 100, 20), (2, "gpt-4o", 0, 0, 0), *((id, "mj_imagine", 50_000, 0, 0) for id in (3, 4, 5))]
    table.write_text("id,created_at,type,username,model_name,quota,prompt_tokens,completion_tokens,other\n" + "".join(
        f"{number},1791194400,2,alice,{model},{quota},{given},{made},\n" for number, model, quota, given, made in rows
    ))  # fmt: skip
    read = ["tokens", "--format", "new-api", "--source", "new-api-hq", "--endpoint", live_server.url,
            "--token-file", str(token), "--state", str(tmp_path / "one"), str(table)]  # fmt: skip
    assert main(read) == 3
    said = "1 records, 1 requests without counts, 3 requests paid by the call"
    assert said in capsys.readouterr().err
    assert [row[:5] for row in ledger()] == [("new-api-hq", "alice", "gpt-4o", None, 1)]
    october = BillingPeriod(start=datetime(2026, 10, 1, tzinfo=UTC), end=datetime(2026, 11, 1, tzinfo=UTC))
    found = in_quarantine(Context(october, october.end, RatingResult()))
    subject = "token:reader via usage/tokens"
    assert [(item.kind, item.subject, item.quantity, item.blocks) for item in found] == [
        ("quarantine", subject, 1, True), ("paid_by_call", subject, 3, True)
    ]  # fmt: skip
    call_command("quarantine")
    listed = capsys.readouterr().out.splitlines()
    assert "no token counts for model gpt-4o" in listed[0]
    assert listed[1].startswith("3 x paid_by_call token:reader: paid by the call: model mj_imagine has no tokens")
    assert listed[2:] == ["4 records in quarantine"]
    admin = signed_in(person("ada", "admin"))
    page = admin.get("/quarantine/").content.decode()
    assert ("Paid by the call" in page, "Decide all 3…" in page, "Decide all 1…" in page) == (True, True, False)
    cause = {"reason": "paid_by_call", "door": "usage/tokens", "reporter": "token:reader"}
    admin.post("/quarantine/cause/", {**cause, "action": "dismiss", "why": "in the invoice of the picture service"})
    (left,) = QuarantinedRecord.objects.filter(status="open")
    assert left.error.startswith("no token counts for model gpt-4o")


def test_a_file_says_once_how_many_requests_paid_by_the_call_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, out = tmp_path / "logs.csv", tmp_path / "usage.csv"
    table.write_text("id,created_at,type,username,model_name,quota,prompt_tokens,completion_tokens\n" + "".join(
        f"{number},1791194400,2,alice,mj_imagine,50000,0,0\n" for number in range(500)
    ))  # fmt: skip
    assert main(["tokens", "--format", "one-api", "--source", "one-api", "--out", str(out), str(table)]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "0 records, 500 requests paid by the call",
        "paid by the call: these have no tokens, and nothing bills them; charge them elsewhere",
    ]
    assert len(out.read_text().splitlines()) == 1


def test_a_request_without_a_payer_blocks_the_close_and_what_a_program_prints_does_not(
    tmp_path: Path, live_server: Any
) -> None:
    log, read = tmp_path / "access.log", of_envoy(tmp_path, live_server)
    log.write_text("starting main dispatch loop\n" + line(0, consumer=None) + line(1))
    for state in ("one", "two"):
        assert main([*read, "--state", str(tmp_path / state), str(log)]) == 3
    (entry,) = QuarantinedRecord.objects.all()
    assert entry.error == (
        "consumer is missing: none of consumer | x-consumer | user_id | x-user-id (Object missing required field `source`)"
    )
    kept = [json.loads(text) for text in (tmp_path / "one" / "rejected.jsonl").read_text().splitlines()]
    assert json.loads(entry.record)["id"] == kept[1]["id"]
    assert [item["line"][:8] for item in kept] == ["starting", line(0)[:8]]
    assert [row[4] for row in ledger()] == [1]


def test_what_a_reader_numbers_shows_no_gap_until_a_body_is_lost(tmp_path: Path, live_server: Any) -> None:
    log, state = tmp_path / "access.log", tmp_path / "state"
    read = [*of_envoy(tmp_path, live_server), "--state", str(state), str(log)]
    october = Interval(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))
    log.write_text(line(0) + line(1))
    assert main(read) == 0
    with log.open("a") as more:
        more.write(line(2))
    assert main(read) == 0, "in another process the numbers go on"
    assert sequence_gaps(october) == []
    with sqlite3.connect(state / "tokens.sqlite") as connection:
        connection.execute("UPDATE numbering SET following = following + 2")  # two records that never came
    connection.close()
    with log.open("a") as more:
        more.write(line(3))
    assert main(read) == 0
    (gap,) = sequence_gaps(october)
    assert (gap.source, gap.stretches, gap.missing) == ("envoy-hq", [(3, 4)], 2)
    assert main([*read[:-3], "--state", str(tmp_path / "another"), str(log)]) == 0
    assert len(sequence_gaps(october)) == 1, "a reader that begins anew numbers anew"
