"""SOCKS 5 proxies (RFC 1928, RFC 1929): one port, told apart by their user names, with an exit address each."""

from __future__ import annotations

import asyncio

from tests.helpers.proxies import Door, ForwardProxy, pump

#: Methods of authentication, and what is answered where none will do.
NOTHING, PASSWORD, NONE_WILL_DO = 0, 2, 255


class SocksDoor(Door):
    """What a proxy has seen is ``host:port`` with the credentials that came along."""

    scheme = "socks5"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            proxy, brought = await self._greet(reader, writer)
            if proxy is not None:
                await self._connect(proxy, brought, reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _greet(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[ForwardProxy | None, str]:
        _, number = await reader.readexactly(2)
        methods = await reader.readexactly(number)
        if PASSWORD not in methods:
            found = next((proxy for proxy in self.proxies if not proxy.user), None)
            writer.write(bytes((5, NONE_WILL_DO if found is None else NOTHING)))
            return found, ""
        writer.write(bytes((5, PASSWORD)))
        await reader.readexactly(1)
        user, password = [(await reader.readexactly((await reader.readexactly(1))[0])).decode() for _ in range(2)]
        found = next((one for one in self.proxies if (one.user, one.password) == (user, password)), None)
        writer.write(bytes((1, found is None)))
        return found, f"{user}:{password}"

    async def _connect(
        self, proxy: ForwardProxy, brought: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        *_, kind = await reader.readexactly(4)
        if kind == 1:
            host = ".".join(map(str, await reader.readexactly(4)))
        else:
            host = (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        port = int.from_bytes(await reader.readexactly(2), "big")
        proxy.seen.append((f"{host}:{port}", brought))
        if proxy.mode != "serve":
            writer.write(bytes((5, 2, 0, 1, 0, 0, 0, 0, 0, 0)))
            return
        upstream, out = await asyncio.open_connection(host, port, local_addr=(proxy.exit, 0))
        writer.write(bytes((5, 0, 0, 1, 0, 0, 0, 0, 0, 0)))
        ways = [asyncio.ensure_future(pump(reader, out)), asyncio.ensure_future(pump(upstream, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
        out.close()
