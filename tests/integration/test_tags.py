"""Tags of token records: an allow-list per source says what is kept; a value outside it goes nowhere."""

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from billing.setup.file import SetUpFileError
from billing.tenancy.models import TagRule
from billing.tenancy.tokens import api_token_create
from billing.usage.models import QuarantinedRecord
from billing.usage.services.replay import quarantine_replay
from billing.usage.store.records import record_stored
from metering.token_keys import token_key
from tests.factories import AFTER, apply, ingest_tokens, token_record
from tests.factories.commands import TOKEN_ROW, Manage, file
from tests.factories.ingest import answer
from tests.factories.token_endpoint import through_django
from tests.stored_rows import everything_stored, query

pytestmark = pytest.mark.django_db
PRODUCT = {"source": "litellm-hq", "key": "product"}
CUSTOMER = {"source": "litellm-hq", "key": "customer", "from": "tags.client", "longest": "8", "values_a_day": "2"}
SECRET = "a-secret-of-nobody"


@pytest.fixture
def kept(tmp_path: Path) -> None:
    apply(tmp_path, tags=[PRODUCT, CUSTOMER])


def tags_of(number: int) -> Any:
    stored = record_stored(token_key("litellm-hq", f"req-{number}"))
    assert stored is not None
    return stored.get("tags")


def test_only_tags_of_the_list_are_kept_under_their_keys(kept: None) -> None:
    ingest_tokens(
        token_record(1, tags={"product": "chat", "client": "acme", "user": SECRET}),
        token_record(2, tags={"user": SECRET, "customer": SECRET}), token_record(3, tags={}), token_record(4),
        token_record(5, source="other", tags={"product": SECRET}),
    )  # fmt: skip
    assert [tags_of(number) for number in (1, 2, 3, 4)] == [{"product": "chat", "customer": "acme"}, None, None, None]
    assert query("SELECT count(*) FROM token_detail") == [(1,)]
    assert SECRET not in everything_stored()


def test_a_value_that_is_too_long_or_no_text_is_not_kept(kept: None) -> None:
    ingest_tokens(token_record(1, tags={"client": "acme-and-sons", "product": 7}),
                  token_record(2, tags={"product": "two\nlines", "client": None}))  # fmt: skip
    assert (tags_of(1), tags_of(2)) == ({"product": None, "customer": None}, {"product": None})
    assert "acme-and-sons" not in everything_stored()


def test_a_day_keeps_so_many_values_of_a_tag(kept: None) -> None:
    """Two a day: the third is not kept, the first two go on, the next day begins anew."""
    for number, client in enumerate(("a", "b", "c", "a")):
        ingest_tokens(token_record(number, tags={"client": client}))
    ingest_tokens(token_record(9, tags={"client": "c"}, time="2026-10-16T12:00:00+08:00"))
    assert [tags_of(number) for number in (0, 1, 2, 3, 9)] == [
        {"customer": value} for value in ("a", "b", None, "a", "c")
    ]  # fmt: skip
    together = [token_record(20 + n, tags={"client": f"n{n}"}, time="2026-10-17T12:00:00+08:00") for n in range(4)]
    ingest_tokens(*together)
    assert sorted(str(tags_of(20 + n)["customer"]) for n in range(4)) == ["None", "None", "n0", "n1"]


@pytest.mark.parametrize(("first", "second", "same"), [
    ({"product": "a"}, {"product": "a"}, True),
    ({"product": "a"}, {"product": "b"}, False),
    ({"product": "a"}, {}, True),
    (None, {"product": "a"}, True),
    ({"product": "a", "user": "x"}, {"product": "a", "user": "y"}, True),
    ({"product": "a"}, {"client": "c"}, True),
    ({"client": "much-too-long"}, {"client": "c"}, True),
])  # fmt: skip
def test_only_different_values_of_a_kept_tag_are_a_conflict(kept: None, first: Any, second: Any, same: bool) -> None:
    expected = (0, 1, 0) if same else (0, 0, 1)
    ingest_tokens(token_record(1, tags=first))
    assert answer(ingest_tokens(token_record(1, tags=second)))[:3] == expected
    both = ingest_tokens(token_record(2, tags=first), token_record(2, tags=second))
    assert answer(both)[:3] == (1, *expected[1:])


def test_what_goes_to_quarantine_has_no_other_tags_either(kept: None) -> None:
    """Bad counts, a conflict, the future, another source's token, tags that are no object, a body that is no JSON."""
    tags = {"product": "chat", "user": SECRET}
    _, presented = api_token_create(name="gateway", scopes=["usage:write"], source="litellm-hq", actor="tests")
    ingest_tokens(token_record(1))
    records = [
        token_record(2, output_tokens=-1, tags=tags), token_record(1, output_tokens=99, tags=tags),
        token_record(3, time="2199-01-01T00:00:00Z", tags=tags), token_record(4, source="other", tags=tags),
        token_record(5, tags=SECRET),
    ]  # fmt: skip
    broken = json.dumps(token_record(6, tags=tags)).replace('"output_tokens": 100', '"output_tokens": 01')
    torn = '{"id": "req-7", "tags": {"user": "' + SECRET + '"}, "x": }}'
    answers = [
        through_django(json.dumps(records).encode(), presented),
        through_django(broken.encode(), presented, CONTENT_TYPE="application/x-ndjson"),
        through_django(torn.encode(), presented, CONTENT_TYPE="application/x-ndjson"),
    ]
    assert [status for status, *_ in answers] == [200, 200, 200]
    assert QuarantinedRecord.objects.count() == 7
    assert SECRET not in everything_stored() + str(answers)
    assert [json.loads(row.record)["tags"] for row in QuarantinedRecord.objects.filter(key__endswith="req-2")] == [
        {"product": "chat"}
    ]  # fmt: skip


def test_a_record_out_of_quarantine_has_its_kept_tags(kept: None) -> None:
    ingest_tokens(token_record(1, output_tokens=-1, tags={"client": "acme", "user": SECRET}))
    entry = QuarantinedRecord.objects.get()
    corrected = entry.record.replace('": -1', '": 100')
    quarantine_replay(record_id=entry.pk, actor="ops", reason="sign", now=AFTER, corrected=corrected)
    assert tags_of(1) == {"customer": "acme"}


def test_a_file_has_tags_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: None) -> None:
    row = {**TOKEN_ROW, "tags": json.dumps({"product": "chat", "user": SECRET})}
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row))
    writer.writeheader()
    writer.writerow(row)
    manage = Manage(capsys)
    assert manage("import_usage", "tokens", file(tmp_path, text.getvalue())).status == 0
    assert query("SELECT tags::text FROM token_tag_set") == [('{"product": "chat"}',)]
    refused = manage("import_usage", "tokens", file(tmp_path, text.getvalue().replace("{", "[")))
    assert (refused.status, SECRET in refused.error) == (2, False)


def test_the_section_is_the_whole_list(tmp_path: Path) -> None:
    assert [text for text in apply(tmp_path, tags=[PRODUCT, CUSTOMER]).changes if text.startswith("tag ")] == [
        "tag customer of litellm-hq: kept from tags.client", "tag product of litellm-hq: kept from tags.product",
    ]
    assert apply(tmp_path, tags=[PRODUCT, CUSTOMER]).changes == []
    assert apply(tmp_path).changes == []
    assert apply(tmp_path, tags=[CUSTOMER]).changes == ["tag product of litellm-hq: no longer kept"]
    assert list(TagRule.objects.values_list("key", "longest", "values_a_day")) == [("customer", 8, 2)]


@pytest.mark.parametrize(("changed", "said"), [
    ({"key": "a b"}, "key: 'a b' must be up to 64 letters"),
    ({"from": "everything"}, "from: 'everything' must be tags.NAME"),
    ({"longest": "513"}, "longest: '513' must be a whole number from 1 to 512"),
    ({"values_a_day": "0"}, "values_a_day: '0' must be a whole number from 1 to 100000"),
])  # fmt: skip
def test_a_rule_that_cannot_be_is_refused(tmp_path: Path, changed: dict[str, str], said: str) -> None:
    with pytest.raises(SetUpFileError, match=said):
        apply(tmp_path, tags=[PRODUCT | changed])
    with pytest.raises(SetUpFileError, match="'product' of 'litellm-hq' is declared twice"):
        apply(tmp_path, tags=[PRODUCT, PRODUCT])
