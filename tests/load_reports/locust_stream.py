"""Locust against a streaming chat completion: tokens and latencies are fired as entries of type `metric`."""

import json
import time
from itertools import pairwise

from locust import HttpUser, constant_throughput, events, task

RATE_PER_USER = 1
BODY = {"model": "known-rate", "stream": True, "stream_options": {"include_usage": True},
        "messages": [{"role": "user", "content": "count"}]}  # fmt: skip


def fire(name: str, milliseconds: float = 0, size: float = 0) -> None:
    """One entry of type metric."""
    events.request.fire(
        request_type="metric", name=name, response_time=milliseconds, response_length=size, exception=None, context={}
    )


class Chatting(HttpUser):
    """One user: one streamed answer per second."""

    wait_time = constant_throughput(RATE_PER_USER)

    @task
    def answer(self) -> None:
        """Stream an answer and fire what it was."""
        sent = time.perf_counter()
        arrivals: list[float] = []
        usage: dict[str, int] = {}
        with self.client.post("/v1/chat/completions", json=BODY, stream=True, catch_response=True) as response:
            for line in response.iter_lines(chunk_size=1):
                text = line.decode().strip().removeprefix("data: ")
                if not text.startswith("{"):
                    if text == "[DONE]":
                        break
                    continue
                chunk = json.loads(text)
                usage = chunk.get("usage") or usage
                if any(choice["delta"].get("content") for choice in chunk["choices"]):
                    arrivals.append(time.perf_counter())
            response.success()
        gaps = [later - earlier for earlier, later in pairwise(arrivals)]
        fire("ttft_ms", (arrivals[0] - sent) * 1000)
        fire("tpot_ms", sum(gaps) / len(gaps) * 1000)
        fire("input_tokens", size=usage["prompt_tokens"])
        fire("output_tokens", size=usage["completion_tokens"])
        options = self.environment.parsed_options  # what no column holds; the mean of equal values is the value
        fire("offered_rps", size=options.num_users * RATE_PER_USER)
        fire("duration_s", size=options.run_time)
