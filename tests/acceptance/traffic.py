"""Runs in LiteLLM's environment: the OpenAI client sends requests and prints, a JSON line each, what it was answered.

usage: traffic.py ADDRESS FIRST COUNT KINDS [CONCURRENCY]. Request number n is of team nlp or cv by turns.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
import openai


async def chat(client: openai.AsyncOpenAI, number: int, call: str, model: str = "chat") -> dict[str, int]:
    answer = await client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": f"number {number}"}], extra_headers={"x-litellm-call-id": call}
    )
    return told(answer.usage)


async def stream(client: openai.AsyncOpenAI, number: int, call: str, *, asks: bool) -> dict[str, int] | None:
    options: Any = {"stream_options": {"include_usage": True}} if asks else {}
    usage = None
    chunks = await client.chat.completions.create(
        model="chat", messages=[{"role": "user", "content": f"number {number}"}], stream=True,
        extra_headers={"x-litellm-call-id": call}, **options,
    )  # fmt: skip
    async for chunk in chunks:
        usage = chunk.usage or usage
    return told(usage) if usage else None


async def cut(client: openai.AsyncOpenAI, number: int, call: str) -> None:
    chunks = await client.chat.completions.create(
        model="slow", messages=[{"role": "user", "content": f"number {number}"}], stream=True,
        extra_headers={"x-litellm-call-id": call},
    )  # fmt: skip
    async for _ in chunks:
        break
    await chunks.close()


async def embed(client: openai.AsyncOpenAI, number: int, call: str) -> dict[str, int]:
    answer = await client.embeddings.create(
        model="embed", input=[str(number)], encoding_format="float", extra_headers={"x-litellm-call-id": call}
    )
    return {"input": answer.usage.prompt_tokens, "cached": 0, "output": 0, "reasoning": 0}


async def responses(client: openai.AsyncOpenAI, number: int, call: str, *, streams: bool) -> dict[str, int] | None:
    answer: Any = await client.responses.create(
        model="chat", input=f"number {number}", stream=streams, extra_headers={"x-litellm-call-id": call}
    )
    if streams:
        async for event in answer:
            if event.type == "response.completed":
                answer = event.response
    usage = answer.usage
    return usage and {
        "input": usage.input_tokens, "output": usage.output_tokens, "cached": usage.input_tokens_details.cached_tokens,
        "reasoning": usage.output_tokens_details.reasoning_tokens,
    }  # fmt: skip


async def messages(client: openai.AsyncOpenAI, number: int, call: str, *, streams: bool) -> None:
    body = {"model": "chat", "max_tokens": 100, "stream": streams,
            "messages": [{"role": "user", "content": f"number {number}"}]}  # fmt: skip
    headers = {"x-litellm-call-id": call}
    answer = await client.post("/messages", body=body, cast_to=httpx.Response, options={"headers": headers})
    await answer.aread()


def told(usage: Any) -> dict[str, int]:
    given, produced = usage.prompt_tokens_details, usage.completion_tokens_details
    return {
        "input": usage.prompt_tokens, "output": usage.completion_tokens,
        "cached": (given and given.cached_tokens) or 0, "reasoning": (produced and produced.reasoning_tokens) or 0,
    }  # fmt: skip


async def one(clients: dict[str, openai.AsyncOpenAI], number: int, kind: str, gate: asyncio.Semaphore) -> None:
    team, call = ("nlp", "cv")[number % 2], f"call-{number}"
    client = clients[team]
    kinds = {
        "chat": lambda: chat(client, number, call), "mock": lambda: chat(client, number, call, "mock"),
        "fallback": lambda: chat(client, number, call, "falling"), "failure": lambda: chat(client, number, call, "broken"),
        "stream": lambda: stream(client, number, call, asks=True),
        "hidden": lambda: stream(client, number, call, asks=False),
        "responses": lambda: responses(client, number, call, streams=False),
        "responses-stream": lambda: responses(client, number, call, streams=True),
        "messages": lambda: messages(client, number, call, streams=False),
        "messages-stream": lambda: messages(client, number, call, streams=True),
        "cut": lambda: cut(client, number, call), "embed": lambda: embed(client, number, call),
    }  # fmt: skip
    async with gate:
        try:
            usage, ended = await kinds[kind](), "answered"
        except openai.APIStatusError:
            usage, ended = None, "refused"
        except (openai.APIError, OSError):
            usage, ended = None, "broken off"
        except Exception as error:  # a stream that ends in the middle comes as an error of the transport
            if "httpx" not in type(error).__module__ and "httpcore" not in type(error).__module__:
                raise
            usage, ended = None, "broken off"
    told_of = {"number": number, "team": team, "kind": kind, "call": call, "ended": ended, "usage": usage}
    print(json.dumps(told_of), flush=True)


async def main(address: str, first: int, count: int, kinds: list[str], concurrency: int) -> None:
    clients = {
        team: openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=f"sk-{team}", max_retries=0, timeout=60)
        for team in ("nlp", "cv")
    }
    gate = asyncio.Semaphore(concurrency)
    await asyncio.gather(*(one(clients, n, kinds[n // 2 % len(kinds)], gate) for n in range(first, first + count)))


if __name__ == "__main__":
    address, first, count, kinds = sys.argv[1:5]
    asyncio.run(main(address, int(first), int(count), kinds.split(","), int(sys.argv[5]) if len(sys.argv) > 5 else 8))
