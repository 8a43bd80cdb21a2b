"""`python -m tests.acceptance --litellm VENV/bin/python [--only TRIAL]`: what reaches the ledger, by reporter and trial.

A real LiteLLM proxy with four reporters at once, the OpenAI client before it, a real Suanpan behind it, and between both a
relay that can be slow, full or gone. Exit status 0 if our callback lost nothing and doubled nothing in every trial.
"""

import argparse
import json
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.installation import Installation, until
from tests.acceptance.proxy import SOURCES, Proxy
from tests.acceptance.relay import Relay
from tests.acceptance.upstream import Upstream, usage_of

EVERYTHING = "chat:chat;stream:chat;hidden:chat;chat:mock;chat:falling;chat:broken;embeddings:embed"
LANGUAGE = ("chat", "deepseek", "vllm", "claude", "by-responses")
ROUTES = {
    "chat": LANGUAGE, "stream": LANGUAGE, "hidden": LANGUAGE, "responses": (*LANGUAGE, "falling-deepseek"),
    "responses-stream": (*LANGUAGE, "falling-deepseek"), "messages": (*LANGUAGE, "falling-deepseek"),
    "messages-stream": (*LANGUAGE, "falling-deepseek"), "completions": (*LANGUAGE, "text"),
    "completions-stream": ("text", "chat", "deepseek", "vllm", "claude"), "embeddings": ("embed", "vllm-embed"),
    "rerank": ("vllm-rerank", "jina"), "several": ("chat,deepseek", "vllm,claude"), "fetched": ("chat",),
    "repeated": ("chat", "deepseek"),
}  # fmt: skip
"""Route -> the models that are asked there: of its own provider, and of others that LiteLLM bridges to it.

A streamed text completion of `by-responses` is what LiteLLM 1.106.2 cannot do.
"""
OUR_DOOR = "usage/tokens"
MIXED = {**{route: models for route, models in ROUTES.items() if route not in ("fetched", "repeated", "several")},
         "passed": ("vllm",), "passed-stream": ("vllm",)}  # fmt: skip
CHATS = ("chat", "stream", "hidden", "passed", "passed-stream")
"""Routes whose answers state a tier, and whose requests state tags."""
SETUP = """
billing: {currency: CNY, zone: Asia/Shanghai, issuer: AI-INFRA, review: none}
tags:
  - {source: ours, key: product, from: request_tags}
  - {source: ours, key: customer, from: metadata.customer}
"""
BRIDGED = ("responses:deepseek;responses:claude;responses-stream:deepseek;completions:deepseek;chat:by-responses;"
           "messages:chat;rerank:jina")  # fmt: skip
MOCKED = {"prompt_tokens": 500, "completion_tokens": 50, "prompt_tokens_details": {"cached_tokens": 320},
          "completion_tokens_details": {"reasoning_tokens": 40}}  # fmt: skip
Answer = dict[str, Any]
Event = tuple[Any, ...]
Counts = tuple[int, int, int, int]


@dataclass(frozen=True)
class Sums:
    """Requests and tokens of both teams."""

    requests: int
    by_team: dict[str, Counts]

    @property
    def tokens(self) -> int:
        return sum(given + produced for given, _, produced, _ in self.by_team.values())


class Rig:
    """Everything that a trial needs, started once."""

    def __init__(self, installation: Installation, relay: Relay, upstream: Upstream, python: Path, folder: Path) -> None:
        self.installation, self.relay, self.python, self.folder = installation, relay, python, folder
        tokens = {reporter: installation.token(source) for reporter, source in SOURCES.items()}
        self.proxy = Proxy(
            folder / "proxy", python, upstream=upstream.server_port, receiver=relay.address, tokens=tokens
        )
        self.next = 0
        self.seen: Counter[Event] = Counter()
        self.refused: list[Any] = []

    def traffic(self, count: int, kinds: str, concurrency: int = 8) -> subprocess.Popen[str]:
        """Start so many requests."""
        script = Path(__file__).with_name("traffic.py")
        first, self.next = self.next, self.next + count
        return subprocess.Popen(
            [str(self.python), str(script), self.proxy.address, str(first), str(count), kinds, str(concurrency)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def events(self) -> list[Event]:
        """What came into the ledger since the last time it was asked."""
        rows, quarantine = self.installation.ledger()
        reasons = Counter((door, reason) for door, reason, _ in quarantine)
        sys.stdout.write(f"  in quarantine by now: {dict(reasons)}\n" if reasons else "")
        self.refused = [record for record in quarantine if record[0] == OUR_DOOR]
        now = Counter(tuple(row) for row in rows)
        new, self.seen = now - self.seen, now
        return list(new.elements())

    def drained(self) -> bool:
        """Whether our outbox and its spool are empty."""
        path = self.folder / "proxy" / "outbox" / "outbox.sqlite"
        with sqlite3.connect(path, timeout=30) as connection:
            (left,) = connection.execute(
                "SELECT (SELECT count(*) FROM outbox WHERE NOT packed) + (SELECT count(*) FROM spool)"
            ).fetchone()
        connection.close()
        return not left


def answers(process: subprocess.Popen[str]) -> list[Answer]:
    """What the client was answered."""
    out, _ = process.communicate(timeout=600)
    return [json.loads(line) for line in out.splitlines()]


def truths(answer: Answer) -> list[Counts]:
    """Input, cached, output and reasoning tokens of what a request was answered, which may be several answers."""
    if answer["ended"] != "answered":
        return []
    route, _, models = answer["kind"].partition(":")
    expected = [truth(route, model, answer["number"]) for model in models.split(",")]
    printed = answer["usage"]
    if printed and [(printed["input"], printed["cached"], printed["output"], printed["reasoning"])] != expected:
        raise RuntimeError(f"the client got {printed} of {answer}, the upstream said {expected}")
    return expected


def truth(route: str, model: str, number: int) -> Counts:
    if route in ("embeddings", "rerank"):
        return 100 + number, 0, 0, 0
    usage = MOCKED if model == "mock" else usage_of(number)
    reasoning = usage["completion_tokens_details"]["reasoning_tokens"]
    return (usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], usage["completion_tokens"],
            0 if model == "claude" or route.startswith("messages") else reasoning)  # fmt: skip


def answered(given: list[Answer]) -> Sums:
    done = [(answer["team"], counts) for answer in given for counts in truths(answer)]
    return Sums(len(done), {team: added([counts for of, counts in done if of == team]) for team in ("nlp", "cv")})


def reported(events: list[Event], source: str, calls: set[str] | None = None) -> Sums:
    """Successes of one source; of the calls that were answered where the source names the call."""
    mine = [e for e in events if e[0] == source and e[3] != "failure" and (calls is None or e[4] in calls)]
    counts = {team: added([e[5:9] for e in mine if e[1] == team]) for team in ("nlp", "cv")}
    return Sums(len(mine), counts)


def added(counts: list[Any]) -> Counts:
    given, cached, produced, reasoning = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0, 0, 0)
    return given, cached, produced, reasoning


def show(name: str, given: list[Answer], events: list[Event]) -> bool:
    """Print a trial's table; True if our reporter reported exactly what was answered, request by request.

    Anthropic's clients see no reasoning tokens; what LiteLLM reported of them is not compared.
    """
    total = answered(given)
    calls = {answer["call"] for answer in given if answer["ended"] == "answered"}
    kinds = Counter(f"{answer['kind']} {answer['ended']}" for answer in given)
    sys.stdout.write(f"\n{name}: {total.requests} answered, {total.tokens:,} tokens  "
                     f"({', '.join(f'{number} {kind}' for kind, number in sorted(kinds.items()))})\n")  # fmt: skip
    for reporter, source in SOURCES.items():
        tells_call = reporter in ("generic_api", "ours")
        sums = reported(events, source, calls if tells_call else None)
        missing = total.tokens - sums.tokens
        share = 100 * missing / total.tokens if total.tokens else 0.0
        exact = "exact by team and class" if sums.by_team == total.by_team else "by team " + str(sums.by_team)
        sys.stdout.write(f"  {reporter:12} {sums.requests:5} requests {sums.tokens:10,} tokens, missing {missing:8,} "
                         f"({share:5.1f} %)  {exact}\n")  # fmt: skip
    unseen = {answer["call"] for answer in given if answer["kind"].startswith("messages")}
    mine = Counter((e[4], e[1], *e[5:8], 0 if e[4] in unseen else e[8])
                   for e in events if e[0] == SOURCES["ours"] and e[3] != "failure" and e[4] in calls)  # fmt: skip
    wanted = Counter((a["call"], a["team"], *counts) for a in given for counts in truths(a))
    if mine != wanted:
        sys.stdout.write(f"  OURS DIFFERS: missing {list((wanted - mine).elements())[:5]}, "
                         f"too many {list((mine - wanted).elements())[:5]}\n")  # fmt: skip
    more = [e for e in events if e[0] == SOURCES["ours"] and e[3] != "failure" and e[4] not in calls]
    failures = Counter(e[0] for e in events if e[3] == "failure")
    sys.stdout.write(f"  failures reported: {dict(failures)}; ours of requests whose answer broke off: {len(more)}\n")
    sys.stdout.flush()
    return mine == wanted


def quiet(rig: Rig, seconds: float = 8) -> list[Event]:
    """Let the others flush (every 5 s), wait for our outbox, and look."""
    time.sleep(seconds)
    until(rig.drained, "the delivery of the outbox", 240)
    return rig.events()


def everything(rig: Rig) -> tuple[list[Answer], list[Event]]:
    """All kinds of requests, a receiver that keeps up."""
    return answers(rig.traffic(280, EVERYTHING)), quiet(rig)


def other_routes(rig: Rig) -> tuple[list[Answer], list[Event]]:
    """Every route with every provider, streamed and not, four times."""
    kinds = [f"{route}:{model}" for route, models in ROUTES.items() for model in models]
    return answers(rig.traffic(4 * len(kinds), ";".join(kinds))), quiet(rig)


def slow_receiver(rig: Rig) -> tuple[list[Answer], list[Event]]:
    """Each POST takes 2 s."""
    rig.relay.delay_s = 2
    given = answers(rig.traffic(80, "chat:chat;stream:chat"))
    time.sleep(25)
    rig.relay.delay_s = 0
    return given, quiet(rig)


def busy_receiver(rig: Rig) -> tuple[list[Answer], list[Event]]:
    """503 to everything for 20 s."""
    rig.relay.refusing = True
    given = answers(rig.traffic(80, "chat:chat;stream:chat"))
    time.sleep(20)
    rig.relay.refusing = False
    return given, quiet(rig)


def receiver_gone(rig: Rig) -> tuple[list[Answer], list[Event]]:
    """The receiver hangs up for 20 s."""
    rig.relay.gone = True
    given = answers(rig.traffic(80, f"chat:chat;hidden:chat;{BRIDGED}"))
    time.sleep(20)
    rig.relay.gone = False
    return given, quiet(rig)


def terminated(rig: Rig) -> tuple[list[Answer], list[Event]]:
    """SIGTERM as soon as the last answer is there, then a new proxy."""
    given = answers(rig.traffic(80, f"chat:chat;hidden:chat;{BRIDGED}"))
    rig.proxy.end(signal.SIGTERM)
    rig.proxy.start()
    return given, quiet(rig)


def killed_after_the_answer(rig: Rig) -> tuple[list[Answer], list[Event]]:
    """kill -9 as soon as the last answer is there, then a new proxy."""
    given = answers(rig.traffic(80, f"chat:chat;hidden:chat;{BRIDGED}"))
    rig.proxy.end(signal.SIGKILL)
    rig.proxy.start()
    return given, quiet(rig)


def killed_at_random(rig: Rig) -> tuple[list[Answer], list[Event]]:
    """kill -9 after some tens of answers, with others on their way, four times; what was answered counts."""
    chance, given = random.Random(11), []
    for _ in range(4):
        process = rig.traffic(400, f"chat:chat;hidden:chat;stream:chat;{BRIDGED}", 16)
        assert process.stdout is not None
        given += [json.loads(process.stdout.readline()) for _ in range(chance.randrange(20, 90))]
        rig.proxy.end(signal.SIGKILL)
        given += answers(process)
        rig.proxy.start()
    return given, quiet(rig)


def mixed(rig: Rig) -> bool:
    """2,000 calls of all kinds, plain and streamed, with tags and tiers; 503 now and then, kill -9 three times.

    Calls are known by their input, which no two have alike. Of what was answered there must be each record once, in the
    ledger or in quarantine, of its tier and its tags; of what was not, at most one.
    """
    rig.installation.apply(SETUP)
    kinds = ";".join([*(f"{route}:{model}" for route, models in MIXED.items() for model in models)])
    before, _ = rig.installation.details(SOURCES["ours"])
    chance, given = random.Random(5), list[Answer]()
    for calls, killed in ((500, True), (500, True), (500, True), (500, False)):
        process = rig.traffic(calls, kinds, 16)
        assert process.stdout is not None
        for _ in range(chance.randrange(100, 400)):
            given.append(json.loads(process.stdout.readline()))
            rig.relay.refusing = len(given) // 60 % 2 == 1
        if killed:
            rig.proxy.end(signal.SIGKILL)
        given += answers(process)
        rig.relay.refusing = False
        if killed:
            rig.proxy.start()
    quiet(rig, 12)
    now, quarantine = rig.installation.details(SOURCES["ours"])
    chats = {answer["number"] for answer in given if answer["kind"].partition(":")[0] in CHATS}
    found = Counter(
        (row[0], *row[3:6], row[6], json.dumps(row[7] and sorted(_tags(row[7]).items())))
        if row[3] - 100 in chats else (row[0], *row[3:6], None, "null")
        for row in now[len(before):] if row[2] == "provider"
    )  # fmt: skip
    wanted: Counter[Any] = Counter()
    for answer in given:
        route, _, models = answer["kind"].partition(":")
        number = answer["number"]
        for model, counts in zip(models.split(","), truths(answer), strict=False):
            tags = [["customer", f"c{number % 2}"], ["product", f"p{number % 3}"]] if number in chats else None
            states = number in chats and model in ("chat", "vllm", "deepseek")
            tier = ("standard" if number % 5 else "flex") if states else None
            wanted[answer["team"], *counts[:3], tier, json.dumps(tags)] += 1
    return _compared(given, wanted, found, quarantine)


def _tags(stored: Any) -> dict[str, Any]:
    tags: dict[str, Any] = json.loads(stored) if isinstance(stored, str) else stored
    return tags


def _compared(given: list[Answer], wanted: Counter[Any], found: Counter[Any], quarantine: list[list[Any]]) -> bool:
    """Print what the ledger lacks of what was answered, and what it has too much of it."""
    counts, ledger = (Counter[Any]() for _ in range(2))
    for key, number in wanted.items():
        counts[key[:4]] += number
    for key, number in found.items():
        ledger[key[:4]] += number
    waiting = Counter(
        (record["consumer"], *(record[name] for name in ("input_tokens", "cache_read_input_tokens", "output_tokens")))
        for door, _, _, text in quarantine if door == OUR_DOOR and "input_tokens" in (record := json.loads(text))
    )  # fmt: skip
    lost = counts - ledger - waiting
    double = Counter({key: number - counts[key] for key, number in ledger.items() if key in counts and number > counts[key]})
    others = sum(number for key, number in ledger.items() if key not in counts)
    differing = [key for key in (wanted - found) if key[:4] not in lost and key[:4] not in waiting]
    ended = Counter(answer["ended"] for answer in given)
    secret = sum("secret-of-nobody" in json.dumps(row) for row in quarantine)
    mine = Counter(error for door, _, error, _ in quarantine if door == OUR_DOOR)
    sys.stdout.write(
        f"\nmixed ({mixed.__doc__}): {len(given)} calls {dict(ended)}, {counts.total()} answers, in the ledger "
        f"{(counts & ledger).total()}, in quarantine {(counts & waiting).total()}, "
        f"lost {lost.total()} {list(lost)[:5]}, doubled {double.total()} {list(double)[:5]}; "
        f"of calls whose answer broke off {others}; other tier or tags {len(differing)} {differing[:6]}; quarantine of ours "
        f"{dict(mine)}, with a secret {secret}\n"
    )
    sys.stdout.flush()
    return not (lost or double or differing or secret)


def cut_streams(rig: Rig) -> bool:
    """Clients that hang up: LiteLLM's own estimate, the same in our record as in its generic logger's, and marked so."""
    given = answers(rig.traffic(20, "cut:slow"))
    events = quiet(rig, 12)
    printed = {
        reporter: Counter((e[4], e[1], e[2], *e[5:9]) for e in events if e[0] == SOURCES[reporter])
        for reporter in ("generic_api", "ours")
    }
    marked = all(key[2] == "gateway_estimate" for key in printed["ours"])
    same = printed["ours"] == printed["generic_api"]
    sys.stdout.write(f"\ncut streams: {len(given)} hung up, ours reported {printed['ours'].total()}, generic_api "
                     f"{printed['generic_api'].total()}; equal: {same}, all marked as estimates: {marked}\n")  # fmt: skip
    return same and marked and printed["ours"].total() == len(given)


def numbered(rig: Rig) -> bool:
    """Whether our reporter numbered what it reported, no number is missing after all that was done, nothing was refused."""
    runs = rig.installation.runs()
    sys.stdout.write(f"\nnumbered records by source (numbers, gaps): {runs}\n")
    sys.stdout.write(f"of ours in quarantine: {rig.refused[:5]}\n")
    return [(source, gaps) for source, _, gaps in runs] == [(SOURCES["ours"], 0)] and not rig.refused


TRIALS: dict[str, Callable[[Rig], tuple[list[Answer], list[Event]]]] = {
    "everything": everything, "routes": other_routes, "slow": slow_receiver, "busy": busy_receiver,
    "gone": receiver_gone, "sigterm": terminated, "kill": killed_after_the_answer, "kill-random": killed_at_random,
}  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--litellm", type=Path, required=True, metavar="PYTHON", help="Python of LiteLLM's environment")
    parser.add_argument("--only", action="append", choices=(*TRIALS, "mixed", "cut"), help="default: all")
    parser.add_argument("--keep", type=Path, help="a folder for logs and state, kept (default: removed)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="suanpan-acceptance-") as temporary:
        folder = options.keep or Path(temporary)
        upstream = Upstream()
        with Installation(folder / "suanpan") as installation:
            relay = Relay(installation.port)
            rig = Rig(installation, relay, upstream, options.litellm.absolute(), folder)
            rig.proxy.start()
            try:
                good = [show(f"{name} ({trial.__doc__})", *trial(rig))
                        for name, trial in TRIALS.items() if not options.only or name in options.only]  # fmt: skip
                if not options.only or "mixed" in options.only:
                    good.append(mixed(rig))
                if not options.only or "cut" in options.only:
                    good.append(cut_streams(rig))
                good.append(numbered(rig))
            finally:
                rig.proxy.end()
                relay.close()
        upstream.close()
    sys.stdout.write(f"\n{'ours lost nothing and doubled nothing' if all(good) else 'OURS IS NOT EXACT'}\n")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
