"""Joined writes: all writes to a client in one turn of the event loop, such as head and body, go out at once."""

import asyncio


class JoinedWrites:
    """Transport of Uvicorn that joins writes. Uvicorn writes an answer in two parts, each of which wakes the client: for a
    report of one record that was a tenth of all the work.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._parts = transport, loop, list[bytes]()
        self.get_extra_info, self.is_closing = transport.get_extra_info, transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.abort, self.get_write_buffer_size = transport.abort, transport.get_write_buffer_size

    def write(self, data: bytes) -> None:
        """Queue data until the end of this turn of the loop."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send queued data, and close the transport."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():  # the client may have left since
            self._transport.write(b"".join(parts))
