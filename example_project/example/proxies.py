"""Local forward proxies with addresses of their own: ``python -m example.proxies --count 6 --file proxies.txt``.

The first line on stdout tells where they are told what to do; then, or in that line with ``--json``, come their URLs.
SIGTERM or Ctrl-C ends them all.

A proxy forwards plain HTTP and tunnels (CONNECT); sites see it come from 127.0.1.1, 127.0.1.2, … Told to, it fails:

| told with | from then on |
|---|---|
| POST /N/ok | proxy number N serves |
| POST /N/ban | answers 403 in the site's place |
| POST /N/page | answers 200 with a page that is none of the site's |
| POST /N/hang | takes the request and never answers |
| POST /N/die | cuts what it is doing, and refuses connections |
| GET / | tells what each has been asked and how it does, as JSON |

The addresses are those of Linux, where all of 127.0.0.0/8 is this host; elsewhere each has to be configured first.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote, urlsplit

from aiohttp import web

PER_BLOCK = 250
"""Addresses of 127.0.x.0 that are used."""


class Mode(StrEnum):
    """How a proxy does."""

    OK = "ok"
    BAN = "ban"
    PAGE = "page"
    HANG = "hang"
    DIE = "die"


ANSWERS = {Mode.BAN: (403, "Forbidden"), Mode.PAGE: (200, "Are you human?")}
"""What is answered in the site's place."""


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a request to a proxy."""

    method: str
    target: str
    headers: tuple[str, ...]

    @classmethod
    def parsed(cls, data: bytes) -> Head:
        """Read a head; ValueError when it is none."""
        first, *headers = data.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        return cls(method, target, tuple(line for line in headers if line))

    def value(self, name: str) -> str:
        """The value of a header, "" if it is not there."""
        prefix = f"{name.lower()}:"
        return next((line[len(prefix) :].strip() for line in self.headers if line.lower().startswith(prefix)), "")

    def site(self) -> tuple[str, int]:
        """Host and port to connect to."""
        if self.method == "CONNECT":
            host, _, port = self.target.rpartition(":")
            return host, int(port)
        parts = urlsplit(self.target)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{self.target} is not the URL of a page that can be forwarded")
        return parts.hostname, parts.port or 80

    def forwarded(self) -> bytes:
        """The head as the site gets it: without what is the proxy's, and for this one request."""
        parts = urlsplit(self.target)
        path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
        kept = [line for line in self.headers if not line.lower().startswith(("proxy-", "connection:"))]
        return "\r\n".join([f"{self.method} {path} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1")


class ForwardProxy:
    """One proxy. It listens on its exit address, so its host is what sites see.

    ``asked`` counts the requests by what became of them: a `Mode`, or "refused" for a wrong password.
    """

    def __init__(self, exit: str, port: int = 0, user: str = "", password: str = "") -> None:
        self.exit = exit
        self.port = port
        self.mode = Mode.OK
        self.asked: Counter[str] = Counter()
        self._credentials = f"{quote(user, safe='')}:{quote(password, safe='')}@" if user else ""
        self._expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode() if user else ""
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Its URL, with user and password."""
        return f"http://{self._credentials}{self.exit}:{self.port}"

    async def open(self) -> None:
        """Listens; the port it gets is kept for the next time."""
        self._server = await asyncio.start_server(self._accept, self.exit, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Refuses connections, and cuts those it has."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def tell(self, mode: Mode) -> None:
        """Tells it how to do from now on."""
        if mode is Mode.DIE:
            await self.close()
        elif self._server is None:
            await self.open()
        self.mode = mode

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            # The client or the site is gone, or close() cut the connection: there is nobody to tell.
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = Head.parsed((await reader.readuntil(b"\r\n\r\n"))[:-4])
            site = head.site()
        except (ValueError, asyncio.LimitOverrunError):
            return await answer(writer, 400, "Not a request to a proxy")
        if self._expected and head.value("Proxy-Authorization") != self._expected:
            self.asked["refused"] += 1
            return await answer(writer, 407, "Who are you?", 'Proxy-Authenticate: Basic realm="proxy"')
        self.asked[self.mode] += 1
        if self.mode is Mode.HANG:
            # Until the client has had enough.
            await reader.read()
        elif self.mode in ANSWERS:
            await answer(writer, *ANSWERS[self.mode])
        else:
            await self._forward(head, site, reader, writer)

    async def _forward(
        self, head: Head, site: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            from_site, to_site = await asyncio.open_connection(*site, local_addr=(self.exit, 0))
        except OSError:
            return await answer(writer, 502, "The site does not answer")
        try:
            if head.method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                to_site.write(head.forwarded())
            await join((reader, to_site), (from_site, writer))
        finally:
            to_site.close()


async def join(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Copies along each way until one of them ends; a client that leaves is so noticed by the site at once."""
    copies = [asyncio.create_task(copy(*way)) for way in ways]
    try:
        await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in copies:
            task.cancel()
        await asyncio.gather(*copies, return_exceptions=True)


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()


async def answer(writer: asyncio.StreamWriter, status: int, text: str, *headers: str) -> None:
    """Answers in the site's place."""
    body = f"<!doctype html><title>{text}</title><h1>{text}</h1>".encode()
    lines = [
        f"HTTP/1.1 {status} {text}", "Content-Type: text/html; charset=utf-8", f"Content-Length: {len(body)}",
        "Connection: close", *headers, "", "",
    ]  # fmt: skip
    writer.write("\r\n".join(lines).encode() + body)
    await writer.drain()


def exits(count: int) -> Iterable[str]:
    """The addresses of that many proxies."""
    return (f"127.0.{1 + number // PER_BLOCK}.{1 + number % PER_BLOCK}" for number in range(count))


def control(proxies: Sequence[ForwardProxy]) -> web.Application:
    """The site at which the proxies are told what to do."""

    async def tell_all(request: web.Request) -> web.Response:
        return web.json_response(
            [{"exit": proxy.exit, "port": proxy.port, "mode": proxy.mode, "asked": proxy.asked} for proxy in proxies]
        )

    async def change(request: web.Request) -> web.Response:
        number, mode = int(request.match_info["number"]), request.match_info["mode"]
        if not 1 <= number <= len(proxies) or mode not in set(Mode):
            raise web.HTTPNotFound
        await proxies[number - 1].tell(Mode(mode))
        return web.json_response({"exit": proxies[number - 1].exit, "mode": mode})

    app = web.Application()
    app.add_routes([web.get("/", tell_all), web.post(r"/{number:\d+}/{mode}", change)])
    return app


async def serve(proxies: Sequence[ForwardProxy], file: Path | None, as_json: bool) -> None:
    """Runs the proxies until SIGTERM or SIGINT; ``file`` gets their URLs, one a line."""
    stop = asyncio.Event()
    for name in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    runner = web.AppRunner(control(proxies), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        for proxy in proxies:
            await proxy.open()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        urls = [proxy.url for proxy in proxies]
        if file is not None:
            file.write_text("".join(f"{url}\n" for url in urls))
        where = f"http://127.0.0.1:{runner.addresses[0][1]}"
        told = json.dumps({"control": where, "proxies": urls, "exits": [proxy.exit for proxy in proxies]})
        print(told if as_json else "\n".join([where, *urls]), flush=True)
        await stop.wait()
    finally:
        for proxy in proxies:
            await proxy.close()
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m example.proxies", description="Local forward proxies.")
    parser.add_argument("--count", type=int, default=6)
    parser.add_argument("--port", type=int, default=0, help="of each, at its own address; 0 takes free ones")
    parser.add_argument("--user", default="", help="ask for this user name")
    parser.add_argument("--password", default="", help="and this password")
    parser.add_argument("--file", type=Path, help="write their URLs into this file, as LEASE_PROXIES takes it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    proxies = [ForwardProxy(exit, options.port, options.user, options.password) for exit in exits(options.count)]
    try:
        asyncio.run(serve(proxies, options.file, options.json))
    except OSError as error:
        parser.exit(1, f"{error}\nEach proxy needs an address of its own, 127.0.1.1 and on, which Linux has.\n")


if __name__ == "__main__":
    main()
