"""How the pool's machine speaks to its server: without an event loop, and while the lease clock stands still."""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any, TypeVar

import redis
from redis.exceptions import ResponseError

from scrapy_lease.store.calls import Call, Script
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.server import ServerInfo

T = TypeVar("T")
HOUR = 3_600_000


def run(call: Coroutine[Any, Any, T]) -> T:
    """Return what *call* returns, which waits for nothing."""
    try:
        call.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("a call waits for something")


class Wire:
    """Stands where a ``Channel`` does."""

    def __init__(self, client: redis.Redis, namespace: Namespace) -> None:
        version = tuple(map(int, client.info("server")["redis_version"].split(".")))
        self.server = ServerInfo("server-0", version, "", 0)
        #: ms by which the server's clock has been stepped when it looks at it next; it never goes on by itself.
        self.step = 0
        self._connection = client.connection_pool.get_connection()
        self._clock = namespace.clock
        self._scripts: dict[str, Script] = {}

    async def call(self, call: Call) -> Any:
        """Run a script and return its reply."""
        last = int(time.time() * 1000) + (-self.step if self.step else HOUR)
        self.step = 0
        script = self._scripts.get(call.script) or self._load(call.script)
        evalsha = ("EVALSHA", script.sha, len(call.keys), *call.keys, self.server.run_id, *call.args)
        return self.make(("HSET", self._clock, "wall", last), evalsha)[-1]

    def make(self, *commands: tuple[bytes | str | int, ...]) -> list[Any]:
        """Run plain commands as one pipeline; raises what any of them does."""
        self._connection.send_packed_command(self._connection.pack_commands(commands))
        replies = [self._reply() for _ in commands]
        for reply in replies:
            if isinstance(reply, ResponseError):
                raise reply
        return replies

    def _reply(self) -> Any:
        try:
            return self._connection.read_response()
        except ResponseError as error:
            return error

    def _load(self, name: str) -> Script:
        script = self._scripts[name] = Script.load(name, shebang=self.server.version >= (7,))
        self.make(("SCRIPT", "LOAD", script.source))
        return script
