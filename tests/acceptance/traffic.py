"""Runs in LiteLLM's environment: the OpenAI client sends requests and prints, a JSON line each, what it was answered.

usage: traffic.py ADDRESS FIRST COUNT KINDS [CONCURRENCY]. A kind is ROUTE:MODEL, several are divided by semicolons. Request
number n is of team nlp or cv by turns.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import openai


def tags(number: int) -> dict[str, Any]:
    """What a request says of itself: two tags that are kept, and one that is in no list."""
    secret = "secret-of-nobody"
    return {"metadata": {"tags": [f"product:p{number % 3}", f"user:{secret}"], "customer": f"c{number % 2}", "note": secret}}


def prompt(number: int) -> list[Any]:
    return [{"role": "user", "content": f"number {number}"}]


async def chat(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> dict[str, int]:
    answer = await client.chat.completions.create(
        model=model, messages=prompt(number), extra_headers=headers, extra_body=tags(number)
    )
    return reported(answer.usage)


async def stream(
    client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str], *, asks: bool = True
) -> dict[str, int] | None:
    options: Any = {"stream_options": {"include_usage": True}} if asks else {}
    usage = None
    chunks = await client.chat.completions.create(
        model=model, messages=prompt(number), stream=True, extra_headers=headers, extra_body=tags(number), **options
    )
    async for chunk in chunks:
        usage = chunk.usage or usage
    return reported(usage) if usage else None


async def hidden(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> dict[str, int] | None:
    return await stream(client, number, model, headers, asks=False)


async def cut(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> None:
    chunks = await client.chat.completions.create(model=model, messages=prompt(number), stream=True, extra_headers=headers)
    async for _ in chunks:
        break
    await chunks.close()


async def several(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> None:
    """The answers of several models to one request: a list, which the client of OpenAI does not know."""
    await client.post("/chat/completions", body={"model": model, "messages": prompt(number)}, cast_to=httpx.Response,
                      options={"headers": headers})  # fmt: skip


async def completions(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> dict[str, int]:
    answer = await client.completions.create(model=model, prompt=f"number {number}", extra_headers=headers)
    return reported(answer.usage)


async def completions_stream(
    client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]
) -> dict[str, int] | None:
    usage = None
    chunks = await client.completions.create(model=model, prompt=f"number {number}", stream=True, extra_headers=headers)
    async for chunk in chunks:
        usage = chunk.usage or usage
    return reported(usage) if usage else None


async def embeddings(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> dict[str, int]:
    answer = await client.embeddings.create(
        model=model, input=[f"number {number}"], encoding_format="float", extra_headers=headers
    )
    return {"input": answer.usage.prompt_tokens, "cached": 0, "output": 0, "reasoning": 0}


async def rerank(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> dict[str, int]:
    body = {"model": model, "query": f"number {number}", "documents": ["a", "b"]}
    answer = await client.post("/rerank", body=body, cast_to=httpx.Response, options={"headers": headers})
    meta = answer.json()["meta"]
    given = meta["tokens"].get("input_tokens") or meta["billed_units"]["total_tokens"]
    return {"input": given, "cached": 0, "output": 0, "reasoning": 0}


async def responses(
    client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str], *, streams: bool = False
) -> dict[str, int]:
    answer: Any = await client.responses.create(
        model=model, input=f"number {number}", stream=streams, extra_headers=headers
    )
    if streams:
        async for event in answer:
            if event.type == "response.completed":
                answer = event.response
    return told_of_response(answer.usage)


async def responses_stream(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> dict[str, int]:
    return await responses(client, number, model, headers, streams=True)


async def fetched(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> dict[str, int]:
    """A response that is asked for twice more."""
    answer = await client.responses.create(model=model, input=f"number {number}", extra_headers=headers)
    for _ in range(2):
        await client.responses.retrieve(answer.id, extra_headers=headers)
    return told_of_response(answer.usage)


async def messages(
    client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str], *, streams: bool = False
) -> None:
    body = {"model": model, "max_tokens": 100, "stream": streams, "messages": prompt(number)}
    answer = await client.post("/messages", body=body, cast_to=httpx.Response, options={"headers": headers})
    await answer.aread()


async def messages_stream(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> None:
    await messages(client, number, model, headers, streams=True)


async def passed(
    client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str], *, streams: bool = False
) -> dict[str, int] | None:
    """What the proxy passes through to vLLM, whose stream states its usage if anybody asks."""
    body = {"model": model, "messages": prompt(number), **tags(number), **({"stream": True} if streams else {})}
    address = str(client.base_url).replace("/v1/", "/vllm/v1/chat/completions")
    answer = await client.post(address, body=body, cast_to=httpx.Response, options={"headers": headers})
    text = (await answer.aread()).decode()
    if streams:
        if "[DONE]" not in text:
            raise OSError("the stream broke off")
        return None
    usage = json.loads(text)["usage"]
    return {"input": usage["prompt_tokens"], "output": usage["completion_tokens"],
            "cached": usage["prompt_tokens_details"]["cached_tokens"],
            "reasoning": usage["completion_tokens_details"]["reasoning_tokens"]}  # fmt: skip


async def passed_stream(client: openai.AsyncOpenAI, number: int, model: str, headers: dict[str, str]) -> None:
    await passed(client, number, model, headers, streams=True)


KINDS: dict[str, Callable[..., Awaitable[dict[str, int] | None]]] = {
    "chat": chat, "stream": stream, "hidden": hidden, "cut": cut, "several": several, "completions": completions,
    "completions-stream": completions_stream, "embeddings": embeddings, "rerank": rerank, "responses": responses,
    "responses-stream": responses_stream, "fetched": fetched, "messages": messages, "messages-stream": messages_stream,
    "repeated": chat, "passed": passed, "passed-stream": passed_stream,
}  # fmt: skip


def reported(usage: Any) -> dict[str, int]:
    given, produced = usage.prompt_tokens_details, usage.completion_tokens_details
    return {
        "input": usage.prompt_tokens, "output": usage.completion_tokens,
        "cached": (given and given.cached_tokens) or 0, "reasoning": (produced and produced.reasoning_tokens) or 0,
    }  # fmt: skip


def told_of_response(usage: Any) -> dict[str, int]:
    return {
        "input": usage.input_tokens, "output": usage.output_tokens, "cached": usage.input_tokens_details.cached_tokens,
        "reasoning": usage.output_tokens_details.reasoning_tokens,
    }  # fmt: skip


async def one(clients: dict[str, openai.AsyncOpenAI], number: int, kind: str, gate: asyncio.Semaphore) -> None:
    team, (route, _, model) = ("nlp", "cv")[number % 2], kind.partition(":")
    call = "the-same" if route == "repeated" else f"call-{number}"
    async with gate:
        try:
            usage, ended = await KINDS[route](clients[team], number, model, {"x-litellm-call-id": call}), "answered"
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
    asyncio.run(main(address, int(first), int(count), kinds.split(";"), int(sys.argv[5]) if len(sys.argv) > 5 else 8))
