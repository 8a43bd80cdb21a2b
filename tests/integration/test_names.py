"""Names that no price list could write: refused at the endpoint, escaped on a terminal, billable where they are stored."""

import io
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.management import call_command

from billing.closing.report import build_report
from billing.closing.services.closing import period_close
from billing.closing.services.waivers import exception_waive
from billing.invoices.models import Invoice
from billing.invoices.selectors import period_of
from billing.invoices.services.periods import period_open
from billing.usage.models import QuarantinedRecord
from billing.usage.services import Reporter, tokens_ingest
from metering.records import TokenUsage
from tests.factories import AFTER, SET_UP, allocation_record, apply, ingest_allocations, ingest_tokens, token_record

pytestmark = pytest.mark.django_db
BROKEN = "llama\n3\x1b[31m"


def stored(**changed: Any) -> None:
    """A record that came in before there was a rule for names."""
    record = msgspec.convert(token_record(**changed), TokenUsage)
    record = msgspec.structs.replace(record, time=datetime.fromisoformat(token_record()["time"]))
    tokens_ingest(records=[(0, record, b"{}")], reporter=Reporter("tests", "usage/tokens"), now=AFTER)


@pytest.mark.parametrize("field", ["id", "source", "consumer", "model", "site", "provider", "status", "sequence_run"])
@pytest.mark.parametrize("name", ["llama\n3", "a\x1b[31m", " a", "a\u202eb", "a\u2028b", "a\x7f"])
@pytest.mark.parametrize("others", [0, 200])
def test_every_name_of_a_token_record_keeps_the_rule(field: str, name: str, others: int) -> None:
    good = [token_record(number) for number in range(10, 10 + others)]
    outcome = ingest_tokens(*good, token_record(1, **{field: name}))
    assert (outcome.accepted, [refusal.index for refusal in outcome.refusals]) == (others, [others])
    assert QuarantinedRecord.objects.get().error.startswith(field)


@pytest.mark.parametrize("field", ["cluster", "namespace", "pod", "pod_uid", "resource", "accelerator", "node", "queue",
                                   "site", "pool", "allocation_id", "priority_class", "scheduler", "end_rule"])  # fmt: skip
def test_every_name_of_an_allocation_keeps_the_rule(field: str) -> None:
    assert ingest_allocations(allocation_record(**{field: "a\x9bb"})).accepted == 0
    workload = {"kind": "Job", "name": "a\nb"}
    assert ingest_allocations(allocation_record(workload=workload)).accepted == 0
    assert ingest_allocations(allocation_record(node="", labels={"note": "two\nlines"})).accepted == 1


def test_a_stored_name_that_breaks_the_rule_is_priced_and_owned_as_it_is_written(tmp_path: Path) -> None:
    apply(tmp_path)
    stored(model=BROKEN, consumer="key\t1")
    out = io.StringIO()
    with pytest.raises(SystemExit):
        call_command("period_report", "2026-10", stdout=out)
    assert r"unowned_consumer litellm-hq/key\t1" in out.getvalue()
    assert r"write its name as litellm-hq/key\t1" in out.getvalue()
    consumers = [{"source": "litellm-hq", "consumer": r"key\t1", "team": "nlp", "valid_from": "2026-01-01"}]
    apply(tmp_path, consumers=consumers)
    unpriced = [item for item in build_report(period_of("2026-10"), now=AFTER).exceptions if item.kind == "unpriced"]
    assert unpriced[0].action.endswith(r"write its name as llama\n3\x1b[31m")
    version = {**SET_UP["price_versions"][0], "name": "2026-10b", "valid_from": "2026-10-02T00:00:00+08:00"}
    version["tokens"] = [*version["tokens"], {"model": r"llama\n3\x1b[31m", "input": "1", "cache_read": "1", "output": "1"}]
    apply(tmp_path, price_versions=[*SET_UP["price_versions"], version], consumers=consumers)
    assert build_report(period_of("2026-10"), now=AFTER).closable
    assert period_close(month="2026-10", actor="ops", now=AFTER).changed
    lines = {line.token_class: line.quantity for line in Invoice.objects.get().lines.all()}
    assert lines == {"input": Decimal("0.0008"), "cache_read": Decimal("0.0002"), "output": Decimal("0.0001")}


def test_no_command_lets_a_name_reach_the_terminal_raw(tmp_path: Path) -> None:
    apply(tmp_path)
    stored(model=BROKEN, consumer="\x9b31mkey\x85")
    ingest_tokens(token_record(2, model="\x1b]0;owned\x07"))
    for command in (["period_report", "2026-10"], ["period_report", "2026-10", "--json"], ["quarantine"],
                    ["quarantine", "--json"]):  # fmt: skip
        out, err = io.StringIO(), io.StringIO()
        with suppress(SystemExit):
            call_command(*command, stdout=out, stderr=err)
        printed = out.getvalue() + err.getvalue()
        assert len(printed) > 50
        assert [letter for letter in printed if not letter.isprintable() and letter != "\n"] == [], command
        if "--json" in command:
            msgspec.json.decode(out.getvalue())


def test_an_exception_is_waived_by_the_subject_that_the_report_shows(tmp_path: Path) -> None:
    apply(tmp_path)
    ingest_tokens(token_record(input_tokens=-1), reporter=Reporter("gw\x1b[31m", "usage/tokens"))
    waiver = exception_waive(
        period=period_open(month="2026-10"), kind="quarantine", subject=r"gw\x1b[31m via usage/tokens", reason="a test",
        actor="lin", now=AFTER,
    )  # fmt: skip
    assert waiver.subject == "gw\x1b[31m via usage/tokens"
    assert build_report(period_of("2026-10"), now=AFTER).closable
