"""A model server that answers every chat completion with the same tokens at a known rate: 32 in, 50 out, 10 ms apart.

Enough of the OpenAI streaming protocol for load-test tools; the usage object at the end says what was counted.
"""

import asyncio
import json
import sys

INPUT_TOKENS = 32
OUTPUT_TOKENS = 50
TOKEN_SECONDS = 0.01
MODEL = "known-rate"


def event(payload: object) -> bytes:
    """One server-sent event as an HTTP chunk."""
    data = f"data: {payload if isinstance(payload, str) else json.dumps(payload)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def piece(**fields: object) -> dict[str, object]:
    """A chunk of a chat completion."""
    return {"id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": MODEL, **fields}


async def stream(writer: asyncio.StreamWriter) -> None:
    """All tokens of an answer, then its usage."""
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(OUTPUT_TOKENS):
        await asyncio.sleep(TOKEN_SECONDS)
        writer.write(event(piece(choices=[{"index": 0, "delta": {"content": " a"}, "finish_reason": None}])))
        await writer.drain()
    usage = {
        "prompt_tokens": INPUT_TOKENS, "completion_tokens": OUTPUT_TOKENS, "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
    }  # fmt: skip
    writer.write(event(piece(choices=[{"index": 0, "delta": {}, "finish_reason": "length"}])))
    writer.write(event(piece(choices=[], usage=usage)) + event("[DONE]") + b"0\r\n\r\n")
    await writer.drain()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests of one connection, one after the other."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lengths = [line.split(b":")[1] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
            await reader.readexactly(int(lengths[0]) if lengths else 0)
            if head.startswith(b"POST"):
                await stream(writer)
                continue
            body = json.dumps({"object": "list", "data": [{"id": MODEL, "object": "model"}]}).encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
            writer.write(head + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def main(port: int) -> None:
    """Serve on the loopback address until stopped."""
    server = await asyncio.start_server(serve, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
