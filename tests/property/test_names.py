"""Whatever an endpoint accepts as a name can be priced, owned and waived; whatever is stored already can be, too."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from billing.rates.price_list import PriceListError, Sources, parse_price_list
from billing.setup.file import Entry, SetUpFileError, read_fields
from billing.tenancy.ownership import Owner, OwnershipBook, OwnershipRow
from metering.names import MAX_NAME_BYTES, as_name, name_problem, visible
from metering.records import GpuAllocation, TokenUsage, decode_batch
from pricing.rate_card import GpuPrice, PriceVersion, RateCard
from tests.factories import allocation_record, token_record

AT = datetime(2026, 10, 15, tzinfo=UTC)
ODD = "\0\t\n\r\x1b\x7f\x85\x9b\u00a0\u00ad\u200b\u200d\u200e\u2028\u202e\u3000\ufeff\ud800 中é\u0301😀*?[]\\'\"/:#"
TEXTS = st.text(st.one_of(st.sampled_from(ODD), st.characters()), min_size=1, max_size=20)
NOWHERE = Sources(gpu=lambda name: None, tokens=lambda name: None)


def accepted(kind: type[Any], record: dict[str, Any]) -> bool:
    return len(decode_batch(kind, [json.dumps(record).encode()]).records) == 1


def written_as(content: dict[str, Any], *, quoted: bool) -> str:
    """A file. Unless quoted, YAML breaks a line at U+0085 and reads a blank: that name is another one."""
    return yaml.safe_dump(content, allow_unicode=True, default_style='"' if quoted else None)


def card_of(content: dict[str, Any], *, quoted: bool = False) -> RateCard:
    """The rates of a price list, as it is read from the file in which somebody wrote it."""
    text = written_as(content, quoted=quoted)
    listed = parse_price_list(yaml.load(text, yaml.BaseLoader), currency="CNY", sources=NOWHERE)
    gpu = tuple(GpuPrice(item.price, item.accelerator, item.resource) for item in listed.gpu)
    return RateCard([PriceVersion("v", AT, None, gpu, listed.tokens)])


def book_of(tmp: Path, fields: dict[str, str], *, quoted: bool = False) -> OwnershipBook:
    """The owner that a set-up file gives, by the fields that name whom it owns."""
    path = tmp / "set-up.yaml"
    path.write_text(written_as({"ownership": [fields]}, quoted=quoted), encoding="utf-8")
    (entry,) = Entry(read_fields(path), "", path).entries("ownership")
    scope, name = (entry.name(field) for field in fields)
    return OwnershipBook([OwnershipRow(scope, name, Owner("nlp"))])


@given(name=TEXTS)
@example(name="0\x850")
def test_a_name_is_accepted_exactly_where_prices_and_owners_may_name_it(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    tmp = tmp_path_factory.mktemp("names", numbered=True)
    tokens = accepted(TokenUsage, token_record(model=name))
    assert accepted(TokenUsage, token_record(source=name, consumer=name)) == tokens
    assert accepted(GpuAllocation, allocation_record(cluster=name, namespace=name, accelerator=name)) == tokens
    content = {"tokens": [{"model": name, "input": "2"}], "gpu": [{"accelerator": name, "price_per_gpu_hour": "10"}]}
    if tokens:
        card = card_of(content)
        assert card.token_price(name, "input", AT)[1] == Decimal(2)
        assert card.gpu_price(name, "r", AT)[1].price == Decimal(10)
        assert book_of(tmp, {"source": name, "consumer": name}).owner(name, name, AT) == Owner("nlp")
        assert book_of(tmp, {"cluster": name, "namespace": name}).owner(name, name, AT) == Owner("nlp")
    elif name == name.strip():
        with pytest.raises((PriceListError, yaml.YAMLError)):
            card_of(content, quoted=True)
        with pytest.raises((SetUpFileError, UnicodeEncodeError)):
            book_of(tmp, {"cluster": name, "namespace": name}, quoted=True)


@given(name=st.one_of(TEXTS, st.text(min_size=400, max_size=600)))
def test_whatever_was_stored_before_the_rule_is_priced_and_owned_as_it_is_written(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    written = as_name(name)
    assert name_problem(written) is None
    assert (written == name) == (name_problem(name) is None)
    card = card_of({"tokens": [{"model": written, "input": "2"}], "gpu": [{"resource": written, "price_per_gpu_hour": "3"}]})
    assert card.token_price(name, "input", AT)[1] == Decimal(2)
    assert card.gpu_price("other", name, AT)[1].price == Decimal(3)
    tmp = tmp_path_factory.mktemp("names", numbered=True)
    assert book_of(tmp, {"source": written, "consumer": written}).owner(name, name, AT) == Owner("nlp")


@pytest.mark.parametrize(("length", "good"), [(256, True), (512, True), (513, False)])
def test_a_name_has_up_to_512_bytes_everywhere(length: int, good: bool, tmp_path: Path) -> None:
    for name in ("m" * length, "é" * (length // 2) + "m" * (length % 2)):
        assert len(name.encode()) == length
        assert accepted(TokenUsage, token_record(model=name)) == good
        assert (name_problem(name) is None) == good
        if good:
            assert card_of({"tokens": [{"model": name, "input": "2"}]}).token_price(name, "input", AT)[1] == Decimal(2)
            assert book_of(tmp_path, {"source": name, "consumer": name}).owner(name, name, AT) == Owner("nlp")
    assert MAX_NAME_BYTES == 512


@given(text=st.text(st.one_of(st.sampled_from(ODD), st.characters())))
def test_what_is_shown_is_one_line_that_does_nothing_to_a_terminal(text: str) -> None:
    assert visible(text).isprintable()
    assert visible(visible(text)) == visible(text)
