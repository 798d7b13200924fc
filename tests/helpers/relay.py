"""A TCP relay between client and server that delays, freezes, refuses, and swallows single replies.

It reads the protocol's frames (RESP2 and RESP3, not TLS), so it knows which reply belongs to which command.
Subscriptions of RESP2 and `CLIENT REPLY` break that pairing and are not supported.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any, Self
from urllib.parse import urlsplit, urlunsplit

from tests.helpers.resp import Frames
from tests.helpers.servers import LOOPBACK, reserve_port

CHUNK = 1 << 16


class Swallow:
    """One reply that is to be lost: the k-th from now, of the commands that match."""

    def __init__(self, k: int, matches: Callable[[bytes], bool]) -> None:
        self._left = k
        self._matches = matches
        self._done = threading.Event()
        self.command: bytes | None = None

    def __repr__(self) -> str:
        return f"<Swallow left={self._left} command={self.command!r}>"

    @property
    def is_done(self) -> bool:
        """Whether the reply was swallowed; `command` then holds the command's frame."""
        return self._done.is_set()

    def wait(self, timeout: float = 10.0) -> bool:
        """Wait until the reply was swallowed and return whether it was."""
        return self._done.wait(timeout)

    def takes(self, command: bytes) -> bool:
        """Return whether the reply to `command` is the one to lose."""
        if self.is_done or not self._matches(command):
            return False
        self._left -= 1
        if self._left:
            return False
        self.command = command
        self._done.set()
        return True


class _Link:
    """One client's connection with its connection to the server."""

    def __init__(self, relay: Relay, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._relay = relay
        self._client, self._server = client, server
        self._waiting: deque[bytes] = deque()

    async def run(self, from_client: asyncio.StreamReader, from_server: asyncio.StreamReader) -> None:
        """Carry bytes both ways until either side ends."""
        jobs = [
            asyncio.ensure_future(self._carry(from_client, self._server, self._note_commands)),
            asyncio.ensure_future(self._carry(from_server, self._client, self._pass_replies)),
        ]
        try:
            await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _carry(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        look: Callable[[Frames, bytes], tuple[bytes, bool]],
    ) -> None:
        """Forward `source` to `target`, each chunk `delay` seconds after it came; they overlap on the way."""
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        reading = asyncio.ensure_future(self._read(source, queue))
        frames = Frames()
        try:
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(due - asyncio.get_running_loop().time(), 0))
                await self._relay.flowing.wait()
                data, goes_on = look(frames, data)
                target.write(data)
                await target.drain()
                if not goes_on:
                    return
        except OSError:
            return
        finally:
            reading.cancel()

    async def _read(self, source: asyncio.StreamReader, queue: asyncio.Queue[tuple[float, bytes]]) -> None:
        now = asyncio.get_running_loop().time
        data = b"-"
        while data:
            try:
                data = await source.read(CHUNK)
            except OSError:
                data = b""
            queue.put_nowait((now() + self._relay.delay, data))

    def _note_commands(self, frames: Frames, data: bytes) -> tuple[bytes, bool]:
        for command in frames.feed(data):
            if not self._waiting:
                self._relay.round_trips += 1
            self._waiting.append(command)
            self._relay.note(command)
        return data, bool(data)

    def _pass_replies(self, frames: Frames, data: bytes) -> tuple[bytes, bool]:
        passed = b""
        for reply in frames.feed(data):
            is_answer = not reply.startswith(b">") and bool(self._waiting)
            if is_answer and self._relay.swallows(self._waiting.popleft()):
                return passed, False
            passed += reply
        return passed, bool(data)


class Relay:
    """Listens on a loopback port and forwards to the server of `target` (a redis:// URL).

    All methods block, for an instant. `delay` is in seconds for each direction and may be set at any time:
    0.1 makes round trips of 200 ms. `commands`, `verbs`, `connections` and `round_trips` (commands sent while
    their connection awaits no reply are one) count from the start.
    """

    def __init__(self, target: str, *, delay: float = 0.0) -> None:
        self._target = urlsplit(target)
        self.delay = delay
        self.commands = self.round_trips = self.connections = 0
        self.verbs: Counter[str] = Counter()
        self.port, self._port_holder = reserve_port()
        self._swallows: list[Swallow] = []
        self._handlers: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"relay-{self.port}", daemon=True)
        self._thread.start()
        self.restore()

    def __repr__(self) -> str:
        return f"<Relay {self.port} -> {self._target.hostname}:{self._target.port}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The target's URL with this relay in the place of the server."""
        secret, at, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{secret}{at}{LOOPBACK}:{self.port}"))

    def cut(self) -> None:
        """Reset all connections and refuse new ones."""
        self._call(self._cut())

    def restore(self) -> None:
        """Accept connections (again)."""
        self._call(self._listen())

    def drop(self) -> None:
        """Reset all connections; new ones are accepted."""
        self._call(self._drop())

    def freeze(self) -> None:
        """Accept connections and bytes but forward nothing; what comes is kept."""
        self._call(self._flow(False))

    def thaw(self) -> None:
        """Forward what was kept, and go on."""
        self._call(self._flow(True))

    def swallow(self, k: int = 1, command: bytes | Callable[[bytes], bool] = b"") -> Swallow:
        """Lose the k-th reply from now to a command that contains, or satisfies, `command`, and disconnect.

        The server has executed the command, and whatever came after it in the same pipeline; earlier replies
        pass. Connection set-up (HELLO, AUTH, CLIENT, SELECT) counts like any other command.
        """
        matches = command if callable(command) else (lambda frame, part=command: part in frame)
        swallow = Swallow(k, matches)
        self._swallows.append(swallow)
        return swallow

    def close(self) -> None:
        """End all connections and the thread."""
        self._call(self._cut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._port_holder.close()

    def note(self, command: bytes) -> None:
        """Count a command."""
        self.commands += 1
        self.verbs[command.split(b"\r\n", 3)[2].decode().upper()] += 1

    def swallows(self, command: bytes) -> bool:
        """Return whether the reply to `command` is to be lost; every pending order sees it."""
        return any([swallow.takes(command) for swallow in self._swallows])

    def _call(self, job: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(job, self._loop).result(10)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = await asyncio.start_server(self._accept, LOOPBACK, self.port, limit=CHUNK)

    async def _cut(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        await self._drop()

    async def _flow(self, flows: bool) -> None:
        if flows:
            self.flowing.set()
        else:
            self.flowing.clear()

    async def _drop(self) -> None:
        handlers = tuple(self._handlers)
        for handler in handlers:
            handler.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A plain function: of a coroutine asyncio makes a task which reports its cancellation as an error.
        handler = asyncio.ensure_future(self._serve(reader, writer))
        self._handlers.add(handler)
        handler.add_done_callback(self._handlers.discard)

    async def _serve(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            from_server, server = await asyncio.open_connection(self._target.hostname, self._target.port)
            try:
                await _Link(self, client, server).run(from_client, from_server)
            finally:
                server.transport.abort()
        except OSError:
            client.transport.abort()
        except asyncio.CancelledError:
            client.transport.abort()
            raise
        finally:
            # Unlike abort, close sends first what was written: the replies before a swallowed one.
            client.close()
