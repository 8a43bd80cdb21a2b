"""Thousands of bodies that somebody sends to break the endpoints: refused one by one, over real HTTP, in bounded memory."""

import functools
import gzip
import http.client
import json
import random
import threading
import zlib
from collections import Counter
from collections.abc import Callable

import pytest
import zstandard

from billing.tenancy.tokens import api_token_create
from billing.usage.models import QuarantinedRecord
from tests.factories import token_record
from tests.factories.servers import WebProcess, web_process
from tests.hypothesis_profile import examples
from tests.stored_rows import query, token_events

THREADS, BODIES = 6, examples(3_000)
MOST_MEMORY = 400 * 1024 * 1024
"""What the two workers may grow by: their bounded bodies in flight, and what Python keeps for itself."""
ENDPOINTS = (
    *["usage/tokens"] * 6, "events", "events/batch", "usage/litellm", "usage/efficiency", "usage/gpu-allocations",
    "usage/capacity",
)  # fmt: skip
Body = tuple[bytes, dict[str, str]]
JSON = {"Content-Type": "application/json"}


def packed(kind: str, content: bytes) -> Body:
    pack: Callable[[bytes], bytes] = {"gzip": gzip.compress, "zstd": zstandard.compress, "deflate": zlib.compress}[kind]
    return pack(content), {**JSON, "Content-Encoding": kind}


ODD = (b"", b" ", b"\n\n", b"null", b"true", b'"', b"[]]", b"{}", b"[,]", b"\xef\xbb\xbf[]x", b"NaN")


@functools.cache
def bombs() -> list[Body]:
    """Small bodies of which much would become."""
    return [
        packed("gzip", bytes(200_000_000)), packed("zstd", bytes(400_000_000)), packed("zstd", b"[" * 50_000_000),
        (gzip.compress(bytes(9_000_000)) * 3, {**JSON, "Content-Encoding": "gzip"}),
        (zstandard.compress(b"") * 60_000, {**JSON, "Content-Encoding": "zstd"}),
        (bytes.fromhex("28b52ffd04f8") + bytes(64), {**JSON, "Content-Encoding": "zstd"}),  # asks for a window of 2 TB
    ]  # fmt: skip


def hostile(dice: random.Random) -> Body:
    """One body that holds no usage, whatever else it holds."""
    good = json.dumps(token_record()).encode()
    depth = dice.choice((200, 2_000, 20_000))
    shape = dice.randrange(17)
    if shape == 0:
        return b"[" * depth + b"]" * dice.choice((0, depth)), JSON
    if shape == 1:
        return b'[{"id":' + b'{"a":' * depth + b"1" + b"}" * depth + b"}]", JSON
    if shape == 2:
        return good.replace(b"1000", b"9" * dice.choice((20, 400, 5000))), JSON
    if shape == 3:
        return b'[{"id": 1e' + b"9" * dice.randrange(1, 30) + b"}]", JSON
    if shape == 4:
        return good[: dice.randrange(2, len(good))], JSON
    if shape == 5:
        return dice.randbytes(dice.randrange(1, 3000)), JSON
    if shape == 6:
        return good.replace(b"req-1", dice.choice((b"\xff\xfe", b"\xed\xa0\x80", b"\\ud800", b"\\u0000", b"\xc0\x80"))), JSON
    if shape == 7:
        kind = dice.choice(("text/html", "image/png", "application/xml", "multipart/form-data; boundary=x", "x", "a/b/c;;"))
        return good, {"Content-Type": kind}
    if shape == 8:
        return good, {**JSON, "Content-Encoding": dice.choice(("br", "deflate", "gzip, gzip", "x" * 300, "identity, zstd"))}
    if shape == 9:
        content, headers = packed(dice.choice(("gzip", "zstd")), good)
        return content[: dice.randrange(1, len(content) - 1)], headers
    if shape == 10:
        content, headers = packed(dice.choice(("gzip", "zstd")), good)
        wrong = bytearray(content)
        wrong[dice.randrange(4)] ^= 0xFF
        return bytes(wrong), headers
    if shape == 11 and dice.random() < 0.1:
        return dice.choice(bombs())
    if shape == 12:
        return dice.choice(ODD), JSON
    if shape == 13:
        return json.dumps([[], {}, None, "x", 1.5, True, {"source": {"a": []}, "id": [1]}]).encode(), JSON
    if shape == 14:
        return b"[" + b",".join([b"0"] * dice.choice((10, 10_001))) + b"]", JSON
    if shape == 15:
        return json.dumps([token_record(**{dice.choice(("id", "source", "model")): "x" * 100_000})]).encode(), JSON
    return b'[{"' + b"k" * dice.randrange(1, 50_000) + b'":1}]', JSON


class Attacker(threading.Thread):
    def __init__(self, number: int, web: WebProcess, token: str, count: int) -> None:
        super().__init__()
        self.dice, self.web, self.token, self.count = random.Random(number), web, token, count
        self.statuses: Counter[int] = Counter()
        self.broken: list[str] = []

    def run(self) -> None:
        channel = http.client.HTTPConnection("127.0.0.1", self.web.port, timeout=60)
        for _ in range(self.count):
            content, headers = hostile(self.dice)
            endpoint = self.dice.choice(ENDPOINTS)
            for attempt in range(2):  # a server may close a connection between two requests
                try:
                    self.send(channel, endpoint, content, headers)
                    break
                except (http.client.HTTPException, OSError) as error:
                    channel.close()
                    if attempt:
                        self.broken.append(f"{endpoint}: {error!r} for {content[:80]!r}")
        channel.close()

    def send(self, channel: http.client.HTTPConnection, endpoint: str, content: bytes, headers: dict[str, str]) -> None:
        channel.request("POST", f"/api/v1/{endpoint}", content, {"Authorization": f"Bearer {self.token}", **headers})
        answer = channel.getresponse()
        said = answer.read()
        self.statuses[answer.status] += 1
        refused = 400 <= answer.status < 500 and answer.headers["Content-Type"] == "application/problem+json"
        nothing = answer.status == http.client.OK and json.loads(said)["accepted"] == 0
        if not refused and not nothing:
            self.broken.append(f"{endpoint}: {answer.status} {said[:200]!r} for {content[:80]!r} {headers}")


@pytest.mark.django_db(transaction=True)
def test_hostile_bodies_are_refused_and_nothing_breaks() -> None:
    _, token = api_token_create(name="attacker", scopes=["usage:write"], actor="tests")
    bombs()  # once, and before anybody attacks
    with web_process(workers=2) as web:
        workers, before = sorted(web.workers()), web.memory()
        attackers = [Attacker(number, web, token, BODIES // THREADS) for number in range(THREADS)]
        for attacker in attackers:
            attacker.start()
        for attacker in attackers:
            attacker.join(timeout=300)
            assert not attacker.is_alive()
        assert [line for attacker in attackers for line in attacker.broken] == []
        assert sorted(web.workers()) == workers, "no worker died"
        assert web.memory() - before < MOST_MEMORY
    statuses = sum((attacker.statuses for attacker in attackers), Counter())
    assert set(statuses) == {200, 400, 413, 415}
    assert sum(statuses.values()) == BODIES // THREADS * THREADS
    assert query(f"SELECT count(*) FROM {token_events()}") == [(0,)]
    assert QuarantinedRecord.objects.count() > BODIES // 30
