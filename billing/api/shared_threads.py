"""Shared threads for answers: networks of clients take turns, and none gets all threads."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any


class SharedThreads:
    """Pool of threads, of which one network gets three quarters at most; used in the loop of the server."""

    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, name)
        # a quarter stays for other networks, however many clients one has
        self._free, self._most = threads, threads - threads // 4
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # the network whose turn it is first
        self._busy: Counter[str] = Counter()

    def submit(self, network: str, job: Callable[..., None], *arguments: Any) -> None:
        """Run a job in a thread and in the context of the caller, when it is the network's turn.  `job` raises nothing."""
        self._waiting.setdefault(network, deque()).append(partial(copy_context().run, job, *arguments))
        self._begin()

    async def ask(self, network: str, question: Callable[..., Any], *arguments: Any) -> Any:
        """Run a question in a thread and return its result, or raise its error."""
        answer: Future[Any] = Future()
        self.submit(network, _fill, answer, question, *arguments)
        return await asyncio.wrap_future(answer)

    async def stop(self) -> None:
        """Stop after the running jobs; waiting ones are dropped."""
        self._waiting.clear()
        await asyncio.to_thread(self._executor.shutdown)

    def _begin(self) -> None:
        while self._free:
            network = next((one for one in self._waiting if self._busy[one] < self._most), None)
            if network is None:
                return
            jobs = self._waiting.pop(network)
            job = jobs.popleft()
            if jobs:
                self._waiting[network] = jobs  # at the end of the queue
            self._free -= 1
            self._busy[network] += 1
            self._executor.submit(self._do, job, asyncio.get_running_loop(), network)

    def _do(self, job: Callable[[], None], loop: asyncio.AbstractEventLoop, network: str) -> None:
        try:
            job()
        finally:
            with suppress(RuntimeError):  # the server has ended
                loop.call_soon_threadsafe(self._ended, network)

    def _ended(self, network: str) -> None:
        self._free += 1
        self._busy[network] -= 1
        if not self._busy[network]:
            del self._busy[network]
        self._begin()


def _fill(answer: "Future[Any]", question: Callable[..., Any], *arguments: Any) -> None:
    try:
        answer.set_result(question(*arguments))
    except BaseException as error:  # noqa: BLE001 - the caller of `ask` handles it
        answer.set_exception(error)
