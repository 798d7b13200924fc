"""Forward proxies and a site, all real, on this machine; the site sees each proxy under an address of its own.

Everything runs on one event loop in a thread of the test, so that a test can change at any moment how a proxy or the
site behaves, and read what they saw.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlsplit

T = TypeVar("T")

#: The address from which a request comes that went past every proxy.
DIRECT = "127.0.0.1"
BAN_PAGE = b"<html><h1>Are you a robot?</h1></html>"

_REASONS = {200: "OK", 302: "Found", 401: "Unauthorized", 403: "Forbidden", 407: "Proxy Authentication Required"}


@dataclass(slots=True)
class Hit:
    """A request as the site saw it; *ended* is 0 while it is under way. Times are of the monotonic clock, in s."""

    path: str
    peer: str
    agent: str
    started: float
    in_flight: int
    headers: dict[str, str]
    ended: float = 0.0


@dataclass(slots=True)
class Message:
    """The head of a request, with its body."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes


async def read_message(reader: asyncio.StreamReader) -> Message | None:
    """Read one request; None: the other side has no more."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    method, target, _ = head[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    return Message(method, target, headers, await reader.readexactly(int(headers.get("content-length", 0))))


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """Return the bytes of a response."""
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Something')}", f"Content-Length: {len(body)}"]
    lines += ["Content-Type: text/html", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Site:
    """Answers each path with a page, after *latency* s.

    ``/status/NNN/…`` answers with that status, ``/to/PATH`` redirects there, ``/slow/SECONDS/…`` takes so long.

    :ivar banned: addresses that are refused, with :attr:`ban` as (status, body).
    :ivar bans: says of an address and a path whether it is refused.
    """

    def __init__(self, latency: float, context: ssl.SSLContext | None) -> None:
        self.latency = latency
        self.hits: list[Hit] = []
        self.banned: set[str] = set()
        self.bans: Callable[[str, str], bool] = lambda peer, path: peer in self.banned
        self.ban = (403, b"")
        self.ban_headers: dict[str, str] = {}
        self.base = ""
        self._context = context
        self._in_flight: Counter[str] = Counter()

    async def open(self) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        scheme = "https" if self._context else "http"
        self.base = f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        return server

    @property
    def peers(self) -> set[str]:
        """Every address from which a request came."""
        return {hit.peer for hit in self.hits}

    def paths(self) -> list[str]:
        """The paths of the pages that were served, sorted."""
        return sorted(hit.path for hit in self.hits)

    def reply(self, hit: Hit, message: Message) -> bytes:
        """Return the answer to a request."""
        return self._answer(hit.peer, hit.path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")[0]
        try:
            while (message := await read_message(reader)) is not None:
                self._in_flight[peer] += 1
                agent = message.headers.get("user-agent", "")
                hit = Hit(message.target, peer, agent, time.monotonic(), self._in_flight[peer], message.headers)
                self.hits.append(hit)
                try:
                    await asyncio.sleep(self._latency_of(message.target))
                    writer.write(self.reply(hit, message))
                    await writer.drain()
                finally:
                    hit.ended = time.monotonic()
                    self._in_flight[peer] -= 1
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _latency_of(self, path: str) -> float:
        return float(path.split("/")[2]) if path.startswith("/slow/") else self.latency

    def _answer(self, peer: str, path: str) -> bytes:
        if self.bans(peer, path):
            return answer(*self.ban, **self.ban_headers)
        if path.startswith("/status/"):
            return answer(int(path.split("/")[2]), b"<html>no</html>")
        if path.startswith("/to/"):
            return answer(302, Location=path.removeprefix("/to"))
        return answer(200, f"<html><h1>{path}</h1></html>".encode())


@dataclass(slots=True, eq=False)
class ForwardProxy:
    """One proxy, for http (plain) and https (CONNECT).

    :param exit: the address that the site sees.
    :param user: with :attr:`password` what it asks for; "": nothing.
    :ivar mode: ``serve``; ``hang``: it never answers; ``refuse``: it closes each connection; a number: that status.
    :ivar seen: requests that came to it, with the credentials that they brought.
    :ivar refused: connections that it closed at once.
    """

    exit: str
    user: str = ""
    password: str = ""
    mode: str | int = "serve"
    seen: list[tuple[str, str]] = field(default_factory=list)
    refused: int = 0
    port: int = 0
    server: asyncio.Server | None = None
    scheme: str = "http"

    @property
    def url(self) -> str:
        credentials = f"{quote(self.user, safe='')}:{quote(self.password, safe='')}@" if self.user else ""
        return f"{self.scheme}://{credentials}127.0.0.1:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"


class Door:
    """A port with proxies of one endpoint behind it, told apart by their user names."""

    scheme = "http"

    def __init__(self, proxies: list[ForwardProxy]) -> None:
        self.proxies = proxies
        self._writers: set[asyncio.StreamWriter] = set()

    async def open(self, port: int = 0) -> asyncio.Server:
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        for proxy in self.proxies:
            proxy.port, proxy.server, proxy.scheme = server.sockets[0].getsockname()[1], server, self.scheme
        return server

    def cut(self) -> None:
        """End all connections."""
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            if self.proxies and self.proxies[0].mode == "refuse":
                self.proxies[0].refused += 1
            else:
                while (message := await read_message(reader)) is not None:
                    if not await self._handle(message, reader, writer):
                        break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Cancelled only when the loop ends; asyncio would complain of a connection that was.
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _find(self, brought: str) -> ForwardProxy | None:
        """Return the proxy of these credentials, else one that asks for none."""
        for proxy in self.proxies:
            credentials = base64.b64encode(f"{proxy.user}:{proxy.password}".encode()).decode()
            if proxy.user and brought == f"Basic {credentials}":
                return proxy
        return next((proxy for proxy in self.proxies if not proxy.user), None)

    async def _handle(self, message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        brought = message.headers.pop("proxy-authorization", "")
        shown = base64.b64decode(brought.partition(" ")[2]).decode() if brought else ""
        found = self._find(brought)
        proxy = found or self.proxies[0]
        proxy.seen.append((message.target, shown))
        if proxy.mode == "hang":
            await asyncio.sleep(3600)
        status = 407 if found is None else proxy.mode
        if isinstance(status, int):
            writer.write(answer(status, Proxy_Authenticate='Basic realm="proxy"'))
            await writer.drain()
            return message.method != "CONNECT"
        if message.method == "CONNECT":
            return await self._tunnel(proxy, message, reader, writer)
        return await self._forward(proxy, message, writer)

    async def _forward(self, proxy: ForwardProxy, message: Message, writer: asyncio.StreamWriter) -> bool:
        parts = urlsplit(message.target)
        assert parts.hostname is not None
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        upstream, out = await asyncio.open_connection(parts.hostname, parts.port or 80, local_addr=(proxy.exit, 0))
        try:
            headers = "".join(f"{name}: {value}\r\n" for name, value in message.headers.items())
            out.write(f"{message.method} {path} HTTP/1.1\r\n{headers}\r\n".encode("latin-1") + message.body)
            head = await upstream.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            writer.write(head + await upstream.readexactly(length))
            await writer.drain()
        finally:
            out.close()
        return True

    async def _tunnel(
        self, proxy: ForwardProxy, message: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        host, _, port = message.target.rpartition(":")
        upstream, out = await asyncio.open_connection(host, int(port), local_addr=(proxy.exit, 0))
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        ways = [asyncio.ensure_future(pump(reader, out)), asyncio.ensure_future(pump(upstream, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            out.close()
        return False


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    """Carry bytes until one side ends."""
    while data := await source.read(65536):
        target.write(data)
        await target.drain()


class Gateway(Door):
    """One endpoint that gives each user name an exit of its own, as the gateways of providers do.

    :ivar unknown: user names that it refuses.
    """

    def __init__(self, exits: Callable[[], str]) -> None:
        super().__init__([])
        self.unknown: set[str] = set()
        self._next_exit = exits
        self.port = 0

    async def open(self, port: int = 0) -> asyncio.Server:
        server = await super().open(port)
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _find(self, brought: str) -> ForwardProxy | None:
        user, _, password = base64.b64decode(brought.partition(" ")[2]).decode().partition(":")
        if user in self.unknown:
            return None
        for proxy in self.proxies:
            if proxy.user == user:
                return proxy
        self.proxies.append(ForwardProxy(self._next_exit(), user, password, port=self.port))
        return self.proxies[-1]


class Web:
    """A site and proxies in front of it; see the module's docstring.

    :param latency: seconds before each answer of the site.
    :param context: makes it an https site.
    :param site: makes the site.
    """

    def __init__(
        self, *, latency: float = 0.0, context: ssl.SSLContext | None = None, site: Callable[..., Site] = Site
    ) -> None:
        self.site = site(latency, context)
        self.proxies: list[ForwardProxy] = []
        self._doors: list[Door] = []
        self._exits = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="web", daemon=True)
        self._servers: list[asyncio.Server] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self._servers.append(self._do(self.site.open()))
        return self

    def __exit__(self, *exc: object) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def add(
        self, *users: tuple[str, str], exit: str = "", kind: Callable[[list[ForwardProxy]], Door] = Door
    ) -> list[ForwardProxy]:
        """Open one endpoint: a proxy for each (user, password), or one that asks for nothing."""
        made = [ForwardProxy(exit or self._next_exit(), *user) for user in users or [("", "")]]
        door = kind(made)
        self._servers.append(self._do(door.open()))
        self._doors.append(door)
        self.proxies += made
        return made

    def add_many(self, number: int) -> list[ForwardProxy]:
        """Open so many endpoints with one proxy each, which ask for nothing."""
        return [proxy for _ in range(number) for proxy in self.add()]

    def add_gateway(self) -> Gateway:
        """Open an endpoint that takes any user name for a proxy."""
        gateway = Gateway(self._next_exit)
        self._servers.append(self._do(gateway.open()))
        self._doors.append(gateway)
        return gateway

    def die(self, proxy: ForwardProxy) -> None:
        """Close the endpoint of *proxy*: nothing listens there any more."""
        self._do(self._die(proxy))

    async def _die(self, proxy: ForwardProxy) -> None:
        assert proxy.server is not None
        proxy.server.close()
        next(door for door in self._doors if proxy in door.proxies).cut()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _next_exit(self) -> str:
        number = next(self._exits)
        return f"127.0.{1 + number // 250}.{1 + number % 250}"

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)
