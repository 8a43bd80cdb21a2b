"""What docs/gateways.md asks operators to write is understood as it is there."""

import re
import shlex
from typing import Any

import pytest
import yaml

from billing.runtime.home import PROJECT
from metering.__main__ import parser
from metering.gateways.litellm_callback import read_settings
from metering.logs.formats import ENVOY, FORMATS, translator
from metering.logs.mapping import LineReader, read_mapping
from metering.records import TokenUsage

PAGE = (PROJECT / "docs" / "gateways.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def commands() -> list[str]:
    text = "\n".join(blocks("sh")).replace("\\\n", " ")
    return [line.partition("#")[0].replace("…", "--out -").strip() for line in text.splitlines() if "-m metering" in line]


@pytest.mark.parametrize("command", commands())
def test_the_commands_are_commands(command: str) -> None:
    words = shlex.split(command)
    arguments = words[words.index("metering") + 1 :]
    options = parser(arguments).parse_args(arguments)
    assert options.command in ("tokens", "outbox", "engines")


def test_there_are_commands_for_every_reader() -> None:
    assert {shlex.split(command)[3] for command in commands()} == {"tokens", "outbox", "engines"}


def test_every_format_is_described_and_no_other() -> None:
    shown = set(re.findall(r"--format ([a-z-]+)", PAGE)) | set(re.findall(r"`(one-api|new-api|litellm-spend)`", PAGE))
    assert shown == set(FORMATS)


def test_the_access_log_of_envoy_has_what_the_reader_reads() -> None:
    (envoy,) = [block for block in blocks("yaml") if "EnvoyProxy" in block]
    settings = list(yaml.safe_load_all(envoy))[1]["spec"]["telemetry"]["accessLog"]["settings"]
    names = settings[0]["format"]["json"]
    values: dict[str, Any] = {name: 7 for name in names}
    values |= {"start_time": "2026-10-05T10:00:00.250Z", "consumer": "nlp", "response_code": 200}
    values |= {"gen_ai.request.model": "qwen", "gen_ai.usage.input_tokens": 20, "gen_ai.usage.total_tokens": 27}
    (record,) = LineReader(ENVOY, "gw")(values, "derived")
    assert isinstance(record, TokenUsage)
    assert (record.id, record.consumer, record.model, record.provider) == ("7:2026-10-05T10:00:00.250Z", "nlp", "qwen", "7")
    assert (record.input_tokens, record.cache_read_input_tokens, record.cache_creation_input_tokens) == (20, 7, 7)
    assert (record.output_tokens, record.attributes) == (7, None)


def test_the_costs_of_envoys_route_are_those_that_its_log_shows() -> None:
    (envoy,) = [block for block in blocks("yaml") if "EnvoyProxy" in block]
    route = next(iter(yaml.safe_load_all(envoy)))
    for cost in route["spec"]["llmRequestCosts"]:
        assert f"io.envoy.ai_gateway:{cost['metadataKey']})%" in envoy


def test_the_attributes_of_higress_are_enough_for_claude_and_gemini() -> None:
    (text,) = [block for block in blocks("yaml") if block.startswith("attributes:")]
    logged = {attribute["key"] for attribute in yaml.safe_load(text)["attributes"] if attribute["apply_to_log"]}
    claude = {"input_token": 21, "output_token": 50, "total_token": 1571,
              "input_token_details": '{"cache_read_input_tokens": 1300, "cache_creation_input_tokens": 200}'}  # fmt: skip
    gemini = {"input_token": 100, "output_token": 50, "total_token": 180,
              "output_token_details": '{"thoughts_token_count": 30}'}  # fmt: skip
    always = {"input_token", "output_token", "total_token"}
    for attributes, counts in ((claude, (1521, 1300, 200, 50, 0)), (gemini, (100, 0, 0, 80, 30))):
        ai_log = {"model": "m", **{name: value for name, value in attributes.items() if name in logged | always}}
        line = {"ai_log": ai_log, "x-mse-consumer": "c", "start_time": "2026-10-05T10:00:00Z", "response_code": "200"}
        (record,) = translator("higress", source="s")(line, "derived")
        assert isinstance(record, TokenUsage)
        assert record.counts == counts


def test_the_mapping_file_is_a_mapping() -> None:
    (text,) = [block for block in blocks("yaml") if block.startswith("# mapping.yaml")]
    mapping = yaml.safe_load(text)
    read_mapping(mapping)
    usage = {"prompt_tokens": 10, "completion_tokens": 2}
    line = {"request_id": "r", "ts": 1791194400250, "auth": {"user": "u"}, "llm": {"model": "m", "usage": usage}}
    (record,) = translator("json", source="s", mapping=mapping)(line, "derived")
    assert isinstance(record, TokenUsage)
    assert (record.id, record.consumer, record.input_tokens) == ("r", "u", 10)
    named = set(re.search(r"# (input_tokens, .*)", text)[1].split(", "))  # type: ignore[index]
    assert read_mapping({**{name: name for name in named}, "time": "t", "consumer": "c", "model": "m"})


def test_the_settings_of_the_callback_are_settings() -> None:
    (block,) = [block for block in blocks("sh") if "SUANPAN_OUTBOX" in block]
    pairs = re.findall(r"(SUANPAN_\w+)=(\S+)", block)
    settings = read_settings(dict(pairs))
    assert (settings.source, settings.consumer, settings.sender) == ("litellm-hq", ("team_id", "hash"), "thread")
