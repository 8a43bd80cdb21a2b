"""What one turn of the event loop writes to a client, such as head and body of an answer, sent at once."""

import asyncio


class JoinedWrites:
    """As much of a transport as Uvicorn uses. It writes an answer in two, and each of them wakes the client: for a report of
    one record that was a tenth of all the work.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop, self._parts = transport, loop, list[bytes]()
        self.get_extra_info, self.is_closing = transport.get_extra_info, transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading
        self.abort, self.get_write_buffer_size = transport.abort, transport.get_write_buffer_size

    def write(self, data: bytes) -> None:
        """Send it at the end of this turn of the loop."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what was written, and no more."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():  # the client may have left since
            self._transport.write(b"".join(parts))
