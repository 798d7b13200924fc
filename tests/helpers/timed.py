"""Speaks to a server whose clock stands still until a test moves it: what scripts take for ``TIME`` is a key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import redis
from redis.exceptions import ResponseError

from scrapy_lease.store.calls import Call, Script
from scrapy_lease.store.server import ServerInfo

_TIME = "the-time-of-the-test"
#: Midnight in UTC.
MIDNIGHT = 1_767_225_600_000


class TimedWire:
    """Stands where a ``Channel`` does.

    :ivar now: the server's clock, in ms.
    """

    timeout = 5.0

    def __init__(self, client: redis.Redis) -> None:
        version = tuple(map(int, client.info("server")["redis_version"].split(".")))
        self.server = ServerInfo("server-0", version, "", 0)
        self.now = float(MIDNIGHT)
        self._client = client
        self._scripts: dict[str, Script] = {}

    def be_another_server(self) -> None:
        """Be restarted, as far as the scripts can see."""
        number = int(self.server.run_id.rpartition("-")[2]) + 1
        self.server = replace(self.server, run_id=f"server-{number}")

    async def call(self, call: Call) -> Any:
        """Run a script and return its reply."""
        script = self._scripts.get(call.script) or self._load(call.script)
        seconds, micros = divmod(round(self.now * 1000), 1_000_000)
        pipe = self._client.pipeline(transaction=False)
        pipe.hset(_TIME, mapping={"s": seconds, "us": micros})
        pipe.evalsha(script.sha, len(call.keys), *call.keys, self.server.run_id, *call.args)
        reply = pipe.execute(raise_on_error=False)[-1]
        if isinstance(reply, ResponseError):
            raise reply
        return reply

    def _load(self, name: str) -> Script:
        found = Script.load(name, shebang=self.server.version >= (7,))
        source = found.source.replace(b"redis.call('TIME')", f"redis.call('HMGET', '{_TIME}', 's', 'us')".encode())
        script = self._scripts[name] = Script(name, source, self._client.script_load(source))
        return script
