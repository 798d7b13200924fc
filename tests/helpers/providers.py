"""A provider of proxies, and proxies to be checked, as servers on loopback that do what a test says."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

LOOPBACK = "127.0.0.1"


class ProviderServer:
    """Answers each call with what `answer(count)` returns: text, anything for JSON, or a response.

    :ivar asked: the counts of the calls, in turn.
    :ivar sold: how many proxies `proxies` has made.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.sold = 0
        self.headers: list[Any] = []
        self.answer: Callable[[int], Any] = lambda count: {"code": 0, "data": self.proxies(count)}
        #: Seconds before each answer.
        self.delay = 0.0
        self.url = ""

    def proxies(self, count: int) -> list[dict[str, Any]]:
        """Return *count* new proxies of 10 minutes."""
        first, self.sold = self.sold, self.sold + count
        return [
            {"ip": f"10.0.{number >> 8}.{number & 255}", "port": 8000, "ttl": 600}
            for number in range(first, first + count)
        ]

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        count = int(request.query.get("num", 0))
        self.asked.append(count)
        self.headers.append(request.headers)
        await asyncio.sleep(self.delay)
        answer = self.answer(count)
        if isinstance(answer, web.StreamResponse):
            return answer
        return web.Response(text=answer if isinstance(answer, str) else json.dumps(answer))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[ProviderServer]:
        """Serve at :attr:`url`, which has a key in it."""
        app = web.Application()
        app.router.add_get("/get", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        try:
            site = web.TCPSite(runner, LOOPBACK, 0)
            await site.start()
            port = runner.addresses[0][1]
            self.url = f"http://{LOOPBACK}:{port}/get?num={{count}}&key=k3y-s3cr3t"
            yield self
        finally:
            await runner.cleanup()


class CheckedProxy:
    """An HTTP proxy that answers every request itself, or a SOCKS 5 proxy that connects to nowhere.

    :param status: of its answers; 0: it never answers.
    :param credentials: ``user:password`` that it asks for.
    """

    def __init__(self, status: int = 200, credentials: str = "") -> None:
        self.status = status
        self.credentials = credentials
        self.seen: list[str] = []
        self.let_in: list[bool] = []
        self.most = 0
        self._under_way = 0
        self.port = 0

    @asynccontextmanager
    async def running(self, *, socks: bool = False) -> AsyncIterator[CheckedProxy]:
        server = await asyncio.start_server(self._socks if socks else self._http, LOOPBACK, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _http(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.seen.append(head.split("\r\n")[0])
            while not self.status:
                if not await reader.read(100):
                    return
            await asyncio.sleep(0.05)
            wanted = base64.b64encode(self.credentials.encode()).decode()
            is_let_in = not self.credentials or f"Basic {wanted}" in head
            self.let_in.append(is_let_in)
            status = self.status if is_let_in else 407
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok".encode())
            await writer.drain()
        finally:
            self._under_way -= 1
            writer.close()

    async def _socks(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            _, _, method = await reader.readexactly(3)
            writer.write(bytes((5, method)))
            if method == 2:
                words = [await self._word(reader, skip=skip) for skip in (1, 0)]
                writer.write(bytes((1, ":".join(words) != self.credentials)))
            await reader.readexactly(4)
            host = await self._word(reader)
            port = int.from_bytes(await reader.readexactly(2), "big")
            self.seen.append(f"{host}:{port}")
            writer.write(bytes((5, 0 if self.status == 200 else 1, 0, 1, 0, 0, 0, 0, 0, 0)))
            await writer.drain()
        except asyncio.IncompleteReadError:
            self.seen.append("refused")
        finally:
            writer.close()

    @staticmethod
    async def _word(reader: asyncio.StreamReader, skip: int = 0) -> str:
        await reader.readexactly(skip)
        return (await reader.readexactly((await reader.readexactly(1))[0])).decode()
