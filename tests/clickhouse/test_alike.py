"""One history in PostgreSQL, ClickHouse of Debian and of today: every answer, sum, document, hash, seal is the same."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from billing.closing.services.closing import period_close
from billing.invoices.models import Invoice
from billing.rating.models import Charge
from billing.usage.archive.sealed import seals
from billing.usage.models import QuarantinedRecord
from billing.usage.services import quarantine_dismiss, rollups_fold
from billing.usage.services.archiving import records_archive
from billing.usage.services.sealing import ClosedMonth, SealError, usage_seal
from billing.usage.services.token_shards import token_store_begin
from billing.usage.store import clickhouse
from billing.usage.store.clickhouse import Servers, token_servers
from billing.usage.store.sharded import beside_close, replicas_state
from billing.usage.store.sharded_reads import sharded_number
from tests.clickhouse.servers import Replica
from tests.factories import SET_UP, apply, ingest_tokens, token_record
from tests.factories.closing import issue
from tests.factories.ingest import answer, rows
from tests.factories.token_reads import OCTOBER, RECORDS, reads
from tests.stored_rows import database_emptied, query, rewrite

pytestmark = pytest.mark.django_db(transaction=True)
OVER = datetime(2026, 11, 1, 0, 5, tzinfo=UTC)
NOVEMBER_OVER = datetime(2026, 12, 1, 0, 5, tzinfo=UTC)
MANY = [
    token_record(
        1000 + number, time=f"2026-10-{1 + number % 31:02}T{number % 24:02}:59:59.{number:06}+08:00",
        input_tokens=100 * number + 330, output_tokens=150 + number,
    )
    for number in range(150)
]  # fmt: skip
LATE = [record | {"id": f"late-{number}"} for number, record in enumerate(MANY[::7])]
NOVEMBER = [token_record(5000 + number, time=f"2026-11-{1 + number:02}T13:14:15+08:00") for number in range(30)]
OWNERS = [
    {"source": "litellm-hq", "consumer": "nlp-key-1", "team": "nlp", "valid_from": "2026-01-01",
     "valid_until": "2026-10-15T12:59:59.5+08:00"},
    {"source": "litellm-hq", "consumer": "nlp-key-1", "team": "cv", "valid_from": "2026-10-15T12:59:59.5+08:00"},
]  # fmt: skip
PRICES = {
    **SET_UP["price_versions"][0],
    "tokens": [
        {"model": "llama-3-8b", "up_to_tokens": 5000, "input": "2.0000", "cache_read": "0.2000", "cache_creation": "2.0000",
         "output": "8.0000"},
        {"model": "llama-3-8b", "input": "3.0000", "cache_read": "0.3000", "cache_creation": "3.0000", "output": "9.0000"},
    ],
}  # fmt: skip


def closed(month: str, now: datetime) -> list[Any]:
    for record in QuarantinedRecord.objects.filter(status="open").order_by("id"):
        quarantine_dismiss(record_id=record.pk, actor="ops", resolution="the first one is right")
    period_close(month=month, actor="ops", now=now)
    issue(month, now)
    charges = [row[1:] for row in Charge.objects.order_by("id").values_list()]  # without the number of the row
    return [charges, list(Invoice.objects.order_by("id").values_list("number", "total", "document", "sha256"))]


def sealed(folder: Path, month: str, close_seq: int) -> list[Any]:
    item = ClosedMonth(month, OCTOBER, "Asia/Shanghai", close_seq)
    seal, _ = usage_seal(closed=item, address=str(folder / "archive"), actor="ops", now=NOVEMBER_OVER, rows_a_file=50)
    kept = ("rows", "usage_digest", "tokens", "files")
    return [{name: seal.manifest[name] for name in kept}]


def history(folder: Path) -> dict[str, Any]:
    """Repeats, conflicts, wide counts, attributes, prices by length, an owner within an hour, two closes, late usage."""
    found: dict[str, Any] = {}
    folder.mkdir()
    apply(folder, consumers=OWNERS, price_versions=[PRICES])
    found["first"] = answer(ingest_tokens(*RECORDS, *MANY[:100]))
    found["again"] = answer(ingest_tokens(*MANY[50:], *RECORDS, MANY[0] | {"output_tokens": 149}))
    rollups_fold()
    other = RECORDS[0] | {"attributes": {"tags": []}}
    found["few"] = answer(ingest_tokens(other, RECORDS[2], token_record(8), token_record(8)))
    found["october"] = closed("2026-10", OVER)
    found["reads"] = reads()
    found["late"] = answer(ingest_tokens(*LATE, *NOVEMBER, LATE[0] | {"input_tokens": 999}))
    found["november"] = closed("2026-11", NOVEMBER_OVER)
    found["reads after"] = reads()
    found["seal"] = sealed(folder, "2026-10", 1)
    named = ("reason", "key", "error", "times_received")
    found["quarantine"] = list(QuarantinedRecord.objects.order_by("id").values_list(*named))
    found["hours"] = query("SELECT * FROM token_usage_hour ORDER BY 1, 2, 3")
    return found


@pytest.fixture(params=["servers of 18.16", "engine of today"])
def store(request: pytest.FixtureRequest, settings: Any) -> Iterator[Servers]:
    """Two shards of two replicas, or of one."""
    if request.param == "servers of 18.16":
        settings.TOKEN_STORE = request.getfixturevalue("address")
    else:
        here = request.getfixturevalue("engine")
        settings.TOKEN_STORE = f"clickhouse://{here};{here}/tokens"
    yield begun()
    beside_close()


def begun() -> Servers:
    found = token_servers()
    assert found is not None
    assert token_store_begin(servers=found, actor="ops")
    return found


def test_one_history_gives_the_same_bytes_in_both_stores(tmp_path: Path, settings: Any, store: Servers) -> None:
    there = history(tmp_path / "there")
    assert rows("token_entry") == 0
    (seal,) = seals("2026-10")
    with pytest.raises(SealError, match="2026-10: ClickHouse has records of it, and keeps them"):
        records_archive(closed=ClosedMonth("2026-10", OCTOBER, "Asia/Shanghai", 1), seal=seal, actor="ops")
    database_emptied()
    settings.TOKEN_STORE = ""
    here = history(tmp_path / "here")
    assert rows("token_entry") == 206
    assert here["first"] == (103, 0, 0, 0)
    assert here["again"] == (50, 53, 1, 0)
    assert here["few"] == (1, 2, 1, 0)
    assert here["late"] == (52, 0, 1, 0)
    assert all(invoice[1] for _, invoices in (here["october"], here["november"]) for invoice in invoices)
    for name, value in here.items():
        assert there[name] == value, name


class Beside(httpx.HTTPTransport):
    """Asks the engine whatever a server answered, and finds what answers differ and where the store asked."""

    def __init__(self, engine: str) -> None:
        super().__init__()
        self.host, self.port = engine.split(":")
        self.places, self.differ = set[tuple[str, int]](), list[tuple[str, str, str]]()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = super().handle_request(request)
        answer.read()
        if answer.status_code == HTTPStatus.OK:
            self.compare(request, answer.text)
        return httpx.Response(answer.status_code, content=answer.content)

    def compare(self, request: httpx.Request, answer: str) -> None:
        url = request.url.copy_with(host=self.host, port=int(self.port))
        other = super().handle_request(httpx.Request("POST", url, content=request.content, headers=request.headers))
        other.read()
        statement = request.url.params.get("query") or request.content.decode()
        frame = sys._getframe()
        while frame := frame.f_back:
            self.places.add((Path(frame.f_code.co_filename).name, frame.f_lineno))
        by_order = "ORDER BY key" in statement
        found = [text.splitlines() if by_order else sorted(text.splitlines()) for text in (answer, other.text)]
        if other.status_code != HTTPStatus.OK or (found[0] != found[1] and not OF_SERVER.search(statement)):
            self.differ.append((statement, answer, other.text))


OF_SERVER: Final = re.compile("FROM system.(replicas|settings) ")
"""What says how a server is, which the engine only has to be able to answer."""
SENDS: Final = re.compile(r"\b(servers|self)\.(rows|stream|run|insert)\(|\bclient\(\)\.post\(")


@pytest.fixture
def beside(
    engine: str, both: list[Replica], third: Replica, settings: Any, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> Iterator[Beside]:
    """Shards on three servers of 18.16, and what the engine says to each statement that one of them did."""
    places = ",".join(replica.address for replica in (*both, third))
    settings.TOKEN_STORE = f"clickhouse://{places};{places}/today"
    found = Beside(engine)
    with httpx.Client(transport=found) as asking:
        monkeypatch.setattr(clickhouse, "client", lambda: asking)
        yield found
    beside_close()


def test_every_statement_of_the_store_is_answered_alike_by_the_engine_of_today(beside: Beside, tmp_path: Path) -> None:
    servers = begun()
    assert {state for *_, state in replicas_state(servers)} == {"0 records"}
    history(tmp_path / "there")
    assert sharded_number(servers, OCTOBER, 3) == 206 - len(NOVEMBER)
    rewrite("UPDATE token_shard SET incarnation = 'of a backup'")
    assert answer(ingest_tokens(token_record(9000))) == (1, 0, 0, 0)
    assert beside.differ == []
    lines = ((path.name, number, line) for path in Path(clickhouse.__file__).parent.glob("*.py")
             for number, line in enumerate(path.read_text().splitlines(), 1))  # fmt: skip
    asked = {place[:2] for place in lines if SENDS.search(place[2])}
    assert len(asked) > 10
    assert asked - beside.places == set()
