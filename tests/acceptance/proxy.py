"""A LiteLLM proxy of its own for a trial, with every reporter at once, each under a source of its own."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.acceptance.installation import answers, free_port, until
from tests.cli import PROJECT

SOURCES = {"openmeter": "litellm-proxy", "lago": "lago", "generic_api": "generic", "ours": "ours"}
"""Reporter -> source in the ledger; LiteLLM's openmeter callback names its source itself."""

AUTH = '''
from litellm.proxy._types import UserAPIKeyAuth

async def user_api_key_auth(request, api_key):
    if api_key not in ("sk-nlp", "sk-cv"):
        raise Exception("unknown key")
    team = api_key.removeprefix("sk-")
    return UserAPIKeyAuth(api_key=api_key, team_id=team, user_id=team, metadata={"cost_center": "CC-" + team})
'''


class Proxy:
    """Can be stopped, killed and started again; its outbox stays."""

    def __init__(self, folder: Path, python: Path, *, upstream: int, receiver: str, tokens: dict[str, str]) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._litellm = python.with_name("litellm")
        self._environment = {
            **{name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")},
            "PYTHONPATH": str(PROJECT), "LITELLM_MASTER_KEY": "sk-" + os.urandom(16).hex(),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False",
            "OPENMETER_API_ENDPOINT": receiver, "OPENMETER_API_KEY": tokens["openmeter"],
            "OPENMETER_TRUST_REQUEST_USER": "false",
            "LAGO_API_BASE": receiver, "LAGO_API_KEY": tokens["lago"], "LAGO_API_EVENT_CODE": "litellm_tokens",
            "LAGO_API_CHARGE_BY": "team_id",
            "GENERIC_LOGGER_ENDPOINT": f"{receiver}/api/v1/usage/litellm",
            "GENERIC_LOGGER_HEADERS": f"Authorization=Bearer {tokens['generic_api']}",
            "SUANPAN_ENDPOINT": receiver, "SUANPAN_TOKEN": tokens["ours"], "SUANPAN_SOURCE": SOURCES["ours"],
            "SUANPAN_OUTBOX": str(folder / "outbox"), "SUANPAN_TAGS": "product=request_tags,customer=metadata.customer",
        }  # fmt: skip
        (folder / "acceptance_auth.py").write_text(AUTH, encoding="utf-8")
        (folder / "config.yaml").write_text(yaml.safe_dump(configuration(upstream)), encoding="utf-8")
        self.starts = 0

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.port = free_port()
        self.starts += 1
        with (self._folder / f"proxy-{self.starts}.log").open("wb") as log:
            self._process = subprocess.Popen(
                [str(self._litellm), "--config", str(self._folder / "config.yaml"), "--host", "127.0.0.1", "--port",
                 str(self.port)], env=self._environment, cwd=self._folder, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        until(lambda: answers(f"{self.address}/health/liveliness"), "the start of LiteLLM", 180)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it, and all it started, a signal, and wait until it is gone."""
        os.killpg(self._process.pid, number)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()


def configuration(upstream: int) -> dict[str, Any]:
    """Two teams by custom authentication; models of the upstream by several providers, so that LiteLLM has to bridge.

    One model is mocked, one fails, and of two providers one falls back.
    """

    def served(name: str, model: str, path: str = "/v1") -> dict[str, Any]:
        base = f"http://127.0.0.1:{upstream}{path}"
        params = {"model": model, "api_base": base, "api_key": "none", "max_retries": 0}
        return {"model_name": name, "litellm_params": params}

    usage = {"prompt_tokens": 500, "completion_tokens": 50, "total_tokens": 550,
             "prompt_tokens_details": {"cached_tokens": 320},
             "completion_tokens_details": {"reasoning_tokens": 40}}  # fmt: skip
    message = {"role": "assistant", "content": "mocked"}
    mocked = {"id": "chatcmpl-mock", "choices": [{"message": message}], "usage": usage}
    mock = {"model": "openai/mock", "api_key": "none", "mock_response": mocked}
    return {
        "model_list": [
            *(served(name, f"openai/{name}") for name in ("chat", "slow", "broken", "embed")),
            served("falling", "openai/broken"), served("text", "text-completion-openai/text"),
            served("deepseek", "deepseek/chat"), served("falling-deepseek", "deepseek/broken"),
            served("vllm", "hosted_vllm/chat"), served("claude", "anthropic/claude", ""),
            served("by-responses", "openai/responses/chat"), served("vllm-embed", "hosted_vllm/embed"),
            served("vllm-rerank", "hosted_vllm/rerank", ""), served("jina", "jina_ai/rerank"),
            {"model_name": "mock", "litellm_params": mock},
        ],
        "router_settings": {"fallbacks": [{"falling": ["chat"]}, {"falling-deepseek": ["deepseek"]}], "num_retries": 0},
        "litellm_settings": {
            "callbacks": ["openmeter", "lago", "generic_api", "metering.gateways.litellm_callback.reporter"],
            "standard_logging_payload_excluded_fields": ["messages", "response", "model_map_information"],
        },
        "general_settings": {"custom_auth": "acceptance_auth.user_api_key_auth"},
    }  # fmt: skip
