import asyncio
from collections.abc import Awaitable, Callable

from billing.api.joined_writes import JoinedWrites


class Client(asyncio.Transport):
    """What a client gets, write by write."""

    def __init__(self) -> None:
        super().__init__()
        self.received = list[bytes]()
        self.is_gone = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.received.append(bytes(data))

    def close(self) -> None:
        self.is_gone = True

    def is_closing(self) -> bool:
        return self.is_gone

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


def received(answer: Callable[[JoinedWrites, Client], Awaitable[None]]) -> list[bytes]:
    """What the client got, write by write."""

    async def answered() -> list[bytes]:
        client = Client()
        await answer(JoinedWrites(client, asyncio.get_running_loop()), client)
        return client.received

    return asyncio.run(answered())


def test_what_one_turn_of_the_loop_writes_is_sent_at_once() -> None:
    async def two_answers(transport: JoinedWrites, client: Client) -> None:
        for part in (b"head", b"body"):
            transport.write(part)
        await asyncio.sleep(0)
        transport.write(b"next")
        await asyncio.sleep(0)

    assert received(two_answers) == [b"headbody", b"next"]


def test_a_connection_that_is_closed_sends_what_was_written_before() -> None:
    async def last_answer(transport: JoinedWrites, client: Client) -> None:
        transport.write(b"last words")
        transport.close()
        assert transport.is_closing()
        await asyncio.sleep(0)

    assert received(last_answer) == [b"last words"]


def test_nothing_is_written_to_a_client_that_left_meanwhile() -> None:
    async def too_late(transport: JoinedWrites, client: Client) -> None:
        transport.write(b"answer")
        client.close()
        await asyncio.sleep(0)

    assert received(too_late) == []
