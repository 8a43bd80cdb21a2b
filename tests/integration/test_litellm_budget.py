"""LiteLLM's hook before a call asks a real Suanpan; LiteLLM itself is in `python -m tests.acceptance`."""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import redis
from django.utils import timezone

from billing.budgets.reservations import PREFIX
from billing.budgets.services import standings_refresh
from billing.local.process_list import free_port
from billing.tenancy.tokens import api_token_create
from metering.gateways.litellm_budget import BudgetGate, Hooks, read_settings
from metering.gateways.litellm_callback import MARK, Call
from metering.record_checks import RecordError
from tests.factories import SET_UP, apply
from tests.factories.servers import served_web

pytestmark = pytest.mark.django_db(transaction=True)
KEY = SimpleNamespace(team_id=None, api_key="nlp-key-1")


class HTTPException(Exception):
    """As fastapi has it, which only a proxy brings along."""

    def __init__(self, status_code: int, detail: Any, headers: dict[str, str]) -> None:
        super().__init__(detail)
        self.status_code, self.detail, self.headers = status_code, detail, headers


@pytest.fixture
def environment(services: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A budget of 10.00 of which each request reserves 5.00, and what the proxy's environment says."""
    consumers = [{**SET_UP["consumers"][0], "valid_from": "2024-01-01T00:00:00+08:00"}]
    apply(tmp_path, consumers=consumers, budgets=[{"team": "nlp", "amount": "10.00", "reservation": "5.0000"}])
    standings_refresh(now=timezone.now())
    with redis.Redis.from_url(os.environ["BROKER_URL"]) as client:  # nothing is reserved, as after a start
        for key in client.scan_iter(f"{PREFIX}*"):
            client.delete(key)
    fastapi = ModuleType("fastapi")
    monkeypatch.setitem(vars(fastapi), "HTTPException", HTTPException)
    monkeypatch.setitem(sys.modules, "fastapi", fastapi)
    token = api_token_create(name="litellm", scopes=["budgets:read"], actor="tests")[1]
    with served_web() as port:
        yield {"SUANPAN_ENDPOINT": f"http://127.0.0.1:{port}/", "SUANPAN_BUDGET_TOKEN": token,
               "SUANPAN_SOURCE": "litellm-hq", "SUANPAN_BUDGET_AWAY": "closed", "SUANPAN_BUDGET_SECONDS": "60"}  # fmt: skip


def hooks(environment: dict[str, str], **changed: str) -> Hooks:
    made = Hooks()
    made.gate = BudgetGate(read_settings({**environment, **changed}))
    return made


def request(call: str, **more: Any) -> dict[str, Any]:
    logging_object = SimpleNamespace(model_call_details={MARK: Call(call)})
    return {"model": "llama-3-8b", "metadata": {"note": "n"}, "litellm_logging_obj": logging_object, **more}


async def before(made: Hooks, data: dict[str, Any], key: Any = KEY) -> HTTPException | None:
    try:
        await made.async_pre_call_hook(user_api_key_dict=key, cache=None, data=data, call_type="acompletion")
    except HTTPException as error:
        return error
    return None


async def alone(made: Hooks) -> HTTPException | None:
    refused = await before(made, request("call-9"))
    await made.gate.close()
    return refused


def test_requests_pass_until_the_budget_is_reserved_and_a_failure_gives_its_part_back(environment: dict[str, str]) -> None:
    async def trial() -> tuple[Any, ...]:
        made, failing = hooks(environment), request("call-2")
        first, second = await before(made, request("call-1")), await before(made, failing)
        third = await before(made, request("call-3"))
        del failing["litellm_logging_obj"]  # as LiteLLM 1.106.2 does before it reports a failure
        await made.async_post_call_failure_hook(failing, ValueError(), KEY)
        fourth, again = await before(made, request("call-4")), await before(made, request("call-1"))
        await made.gate.close()
        return first, second, third, fourth, again

    first, second, third, fourth, again = asyncio.run(trial())
    assert (first, second, fourth) == (None, None, None)
    assert again is None, "the same call has its reservation"
    assert third is not None
    assert (third.status_code, third.headers) == (429, {"Retry-After": "5"})
    assert "0.00 of 10.00 CNY are spent" in third.detail["error"]


def test_the_question_is_that_of_the_record(environment: dict[str, str]) -> None:
    gate = hooks(environment, SUANPAN_CONSUMER="team_id,hash,user_id").gate
    asked = gate.question(SimpleNamespace(team_id="team-1", api_key="h"), request("call-1", max_tokens=300))
    assert asked == {
        "Source": "litellm-hq", "Consumer": "team-1", "Model": "llama-3-8b", "Id": "call-1", "Output-Tokens": "300",
    }  # fmt: skip
    assert gate.question(SimpleNamespace(team_id=None, api_key="h"), {"model": "m"}) == {
        "Source": "litellm-hq", "Consumer": "h", "Model": "m",
    }  # fmt: skip
    assert gate.question(SimpleNamespace(), {"model": "m"}) is None, "its record goes to quarantine"
    several = {"model": "a,b", "litellm_logging_obj": SimpleNamespace(model_call_details={MARK: Call("c", ("a", "b"))})}
    asked = gate.question(KEY, several)
    assert asked is not None
    assert "Id" not in asked, "each answer is a record of its own"
    told = request("call-1")
    told["litellm_logging_obj"].model_call_details[MARK] = {"id": "chosen by the client"}
    assert "Id" not in (gate.question(KEY, told) or {})


@pytest.mark.parametrize(("away", "status"), [("open", None), ("closed", 503)])
def test_without_an_answer_the_setting_decides(
    environment: dict[str, str], away: str, status: int | None, tmp_path: Path
) -> None:
    nobody = {"SUANPAN_ENDPOINT": f"http://127.0.0.1:{free_port()}"}
    missing = {"SUANPAN_BUDGET_TOKEN": "", "SUANPAN_BUDGET_TOKEN_FILE": str(tmp_path / "none")}
    for changed in (nobody, {"SUANPAN_BUDGET_TOKEN": "wrong"}, missing, {"SUANPAN_SOURCE": "\n"}):
        refused = asyncio.run(alone(hooks(environment, SUANPAN_BUDGET_AWAY=away, **changed)))
        assert (refused and refused.status_code) == status, changed
    assert asyncio.run(alone(hooks(environment))) is None


def test_settings_name_what_is_wrong() -> None:
    right = {"SUANPAN_ENDPOINT": "http://s", "SUANPAN_TOKEN": "t", "SUANPAN_BUDGET_AWAY": "open"}
    assert read_settings(right).read_token() == "t", "the callback's own, where it may ask too"
    wrong = [("SUANPAN_BUDGET_AWAY", ""), ("SUANPAN_BUDGET_AWAY", "yes"), ("SUANPAN_ENDPOINT", ""), ("SUANPAN_TOKEN", ""),
             ("SUANPAN_BUDGET_SECONDS", "0"), ("SUANPAN_BUDGET_SECONDS", "soon")]  # fmt: skip
    for name, value in wrong:
        with pytest.raises(RecordError, match=name.replace("SUANPAN_TOKEN", "SUANPAN_BUDGET_TOKEN_FILE")):
            read_settings({**right, name: value})
