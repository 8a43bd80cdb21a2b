"""What the ingest benchmarks send and how: made-up live traffic, prepared requests, senders that cost next to nothing."""

import multiprocessing
import select
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any
from uuid import UUID

CONSUMERS, MODELS = 60, 4
ALLOWED = (200, 204)


TEN_MINUTES_US = 600_000_000
LONGEST_REQUEST_US = 30_000_000


def records(
    count: int, *, seed: int, identity: Callable[[Random, int], str] | None = None, until_us: int | None = None,
    span_us: int = TEN_MINUTES_US,
) -> Iterator[bytes]:
    """Records of `span_us` microseconds before `until_us` (now), as JSON, in the order in which requests ended.

    60 consumers, 4 models, ids as `identity` makes them when a request begins (random UUIDs).
    """
    dice = Random(seed)
    name = identity or random_uuid
    until = until_us or time.time_ns() // 1000
    for number in range(count):
        at = until - span_us + number * span_us // count
        second = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at // 1_000_000))
        cached = dice.randrange(0, 3000) if dice.random() < 0.4 else 0
        output = dice.randrange(1, 2000)
        begun = at - dice.randrange(LONGEST_REQUEST_US)
        yield (
            f'{{"id":"{name(dice, begun)}","source":"litellm-hq","time":"{second}.{at % 1_000_000:06d}Z",'
            f'"consumer":"key-{dice.randrange(CONSUMERS)}","model":"model-{dice.randrange(MODELS)}",'
            f'"input_tokens":{cached + dice.randrange(1, 9000)},"cache_read_input_tokens":{cached},'
            f'"cache_creation_input_tokens":0,"output_tokens":{output},'
            f'"reasoning_output_tokens":{dice.randrange(output)}}}'
        ).encode()


def random_uuid(dice: Random, at: int) -> str:
    """A UUID of version 4."""
    return str(UUID(int=dice.getrandbits(128), version=4))


def ordered_uuid(dice: Random, at: int) -> str:
    """A UUID of version 7 (RFC 9562) of the instant `at` (microseconds since 1970)."""
    number = (at // 1000) << 80 | 0x7 << 76 | dice.getrandbits(12) << 64 | 0x2 << 62 | dice.getrandbits(62)
    return str(UUID(int=number))


def other_text(dice: Random, at: int) -> str:
    """An id as OpenAI's API gives them."""
    return f"chatcmpl-{dice.getrandbits(116):029x}"


def batches(items: Sequence[bytes], size: int, *, replayed: float, seed: int = 1) -> list[bytes]:
    """JSON arrays; a share of each repeats records that are in the batches before it."""
    dice = Random(seed)
    cut = [list(items[index : index + size]) for index in range(0, len(items), size)]
    bodies = []
    for number, batch in enumerate(cut):
        repeats = dice.sample(cut[number - 1], int(len(batch) * replayed)) if number else []
        bodies.append(b"[" + b",".join([*batch, *repeats]) + b"]")
    return bodies


def request(path: str, token: str, body: bytes) -> bytes:
    """One HTTP request, ready to be sent."""
    head = (
        f"POST /api/v1/{path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def at_once(work: Callable[..., None], arguments: list[tuple[Any, ...]]) -> float:
    """Seconds that the work takes in one process per argument, started together."""
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(len(arguments) + 1)
    running = [context.Process(target=_gated, args=(gate, work, item)) for item in arguments]
    for process in running:
        process.start()
    gate.wait()
    started = time.perf_counter()
    for process in running:
        process.join()
    assert all(process.exitcode == 0 for process in running)
    return time.perf_counter() - started


def _gated(gate: Any, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    gate.wait()
    work(*arguments)


def shares(items: Sequence[Any], number: int) -> list[Sequence[Any]]:
    """The items dealt out to so many senders."""
    return [items[first::number] for first in range(number)]


def send(port: int, requests: Sequence[bytes], connections: int = 1) -> None:
    """Send all requests over so many connections, one at a time on each; every answer must be a 2xx.

    Answers of a second have the same heads: each is read once.
    """
    waiting, begun, bodies = iter(requests), dict[int, bytes](), dict[bytes, int]()
    channels = dict[int, socket.socket]()
    with select.epoll() as poll:
        for _ in range(min(connections, len(requests))):
            channel = socket.create_connection(("127.0.0.1", port))
            channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel.sendall(next(waiting))
            channels[channel.fileno()] = channel
            poll.register(channel, select.EPOLLIN)
        while channels:
            for number, _ in poll.poll():
                channel = channels[number]
                received = channel.recv(65_536)
                assert received, "the server closed the connection"
                answer = begun.pop(number, b"") + received
                head, _, body = answer.partition(b"\r\n\r\n")
                if head not in bodies and len(head) < len(answer):
                    assert int(head[9:12]) in ALLOWED, answer
                    bodies[head] = _length(head)
                if len(body) < bodies.get(head, 1):
                    begun[number] = answer
                    continue
                following = next(waiting, None)
                if following is None:
                    poll.unregister(channel)
                    channels.pop(number).close()
                else:
                    channel.sendall(following)


def _length(head: bytes) -> int:
    """What Content-Length says."""
    for line in head.lower().split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name == b"content-length":
            return int(value)
    return 0
