"""Spend logging of LiteLLM without a database, for its own Python: `PYTHON litellm_spend.py` answers each line that names a
number of events with the seconds they took.

An event is what the proxy does at the end of a request: its own callback gets the request as LiteLLM's client handed it over
(captured from a mocked completion) and makes the row of the spend log, the counters and the sums by day. A client that keeps
what it is given stands where the database would be; what was queued is taken away, as the proxy's jobs do, while the clock
stops, so that nothing waits for a full queue.
"""

import asyncio
import json
import os
import sys
import time
from copy import copy
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import litellm
from litellm.integrations.custom_logger import CustomLogger
from litellm.proxy import proxy_server, utils
from litellm.proxy.hooks.proxy_track_cost_callback import _ProxyDBLogger

TOGETHER = 32
SLICE = 100
"""Events between two times that what was queued is taken away; each puts up to five into a queue that holds 800."""
KEY = {
    "user_api_key": "a" * 64, "user_api_key_hash": "a" * 64, "user_api_key_alias": "key-1", "user_api_key_user_id": "user-1",
    "user_api_key_team_id": "team-1", "user_api_key_team_alias": "team-1",
}  # fmt: skip


class Nothing:
    """Every table of a database in which nothing is found."""

    def __getattr__(self, name: str) -> "Nothing":
        return self

    async def __call__(self, *args: Any, **kwargs: Any) -> None:
        return None


class NoDatabase:
    """Keeps what is to be written, and finds nothing."""

    def __init__(self) -> None:
        self.db = Nothing()
        self.spend_log_transactions: list[Any] = []
        self.tool_usage_transactions: list[Any] = []
        self.model_usage_transactions: list[Any] = []
        self._spend_log_transactions_lock = asyncio.Lock()
        self._tool_usage_transactions_lock = asyncio.Lock()
        self._model_usage_transactions_lock = asyncio.Lock()

    def jsonify_object(self, data: Any) -> dict[str, Any]:
        return dict(utils.jsonify_object(dict(data)))

    async def taken_away(self) -> int:
        """How many spend logs were queued; all queues are empty then."""
        rows = len(self.spend_log_transactions)
        for kept in (self.spend_log_transactions, self.tool_usage_transactions, self.model_usage_transactions):
            kept.clear()
        utils.PrismaClient.spend_log_queue_bytes = 0
        writer = proxy_server.proxy_logging_obj.db_spend_update_writer
        for queue in vars(writer).values():
            if hasattr(queue, "flush_all_updates_from_in_memory_queue"):
                await queue.flush_all_updates_from_in_memory_queue()
        return rows


class _Captured(CustomLogger):
    def __init__(self) -> None:
        super().__init__()
        self.event: asyncio.Future[tuple[Any, ...]] = asyncio.get_running_loop().create_future()

    async def async_log_success_event(self, kwargs: Any, response_obj: Any, start_time: Any, end_time: Any) -> None:
        self.event.set_result((kwargs, response_obj, start_time, end_time))


async def _event() -> tuple[Any, ...]:
    """What a callback receives of one request."""
    captured = _Captured()
    litellm.callbacks = [captured]
    messages = [{"role": "user", "content": "How many beads are on an abacus?"}]
    await litellm.acompletion(model="gpt-4o-mini", messages=messages, mock_response="Ninety-one.", metadata=dict(KEY))
    event = await asyncio.wait_for(captured.event, 30)
    litellm.callbacks = []
    return event


def _another(event: tuple[Any, ...], identity: str) -> tuple[Any, ...]:
    kwargs, response, started, ended = event
    standard = {**kwargs["standard_logging_object"], "id": identity}
    response = copy(response)
    response.id = identity
    return {**kwargs, "litellm_call_id": identity, "standard_logging_object": standard}, response, started, ended


async def _seconds(log: Any, events: list[tuple[Any, ...]]) -> float:
    async def each(part: list[tuple[Any, ...]]) -> None:
        for event in part:
            await log(*event)

    others, started = asyncio.all_tasks(), time.perf_counter()
    await asyncio.gather(*(each(events[first::TOGETHER]) for first in range(TOGETHER)))
    while rest := asyncio.all_tasks() - others:
        await asyncio.wait(rest)
    return time.perf_counter() - started


async def main() -> None:
    event, number = await _event(), 0
    database = NoDatabase()
    proxy_server.prisma_client = database
    log = _ProxyDBLogger()._PROXY_track_cost_callback
    for line in sys.stdin:
        wanted, seconds = int(line), 0.0
        while wanted:
            count = min(SLICE, wanted)
            events = [_another(event, f"request-{number + place}") for place in range(count)]
            seconds += await _seconds(log, events)
            rows = await database.taken_away()
            if rows != count:
                raise RuntimeError(f"{count} requests made {rows} spend logs")
            wanted, number = wanted - count, number + count
        print(json.dumps(seconds), flush=True)


asyncio.run(main())
