"""A connection to the store on which nothing is ever sent twice by itself.

The connection is redis-py's; its retries are off, because a call whose reply was lost must be repeated *as the same
call* by who made it (see :mod:`scrapy_lease.store.scripts`). All calls made in one turn of the event loop leave as one
pipeline; the next pipeline leaves when the replies are in. Each new connection first learns which server process it
talks to, so that no script can be run under the name of a server that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from typing import Any, cast

from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ConnectionError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import TimeoutError as ServerTimeout

from scrapy_lease.exceptions import StoreRefused, StoreUnavailable
from scrapy_lease.store.calls import Call, Script
from scrapy_lease.store.server import Availability, ServerInfo, StoreStats

logger = logging.getLogger(__name__)

#: Answers that mean "not now" rather than "never": the caller repeats its call later.
_PASSING = (BusyLoadingError, OutOfMemoryError, ReadOnlyError, NoScriptError)
_PASSING_PREFIXES = ("MISCONF", "MASTERDOWN", "NOREPLICAS", "CLUSTERDOWN", "TRYAGAIN", "BUSY ", "UNKILLABLE")


class Channel:
    """One connection; calls of one loop turn are one pipeline.

    :param url: ``redis://``, ``rediss://`` or ``unix://``.
    :param shown: the URL without its password, for messages.
    :param timeout: seconds for each pipeline, connecting included.
    :param setting: what names the server, for messages.
    """

    def __init__(
        self, url: str, shown: str, timeout: float, stats: StoreStats, availability: Availability | None = None,
        setting: str = "LEASE_REDIS_URL",
    ) -> None:  # fmt: skip
        self.shown = shown
        self.setting = setting
        self.timeout = timeout
        self.stats = stats
        self.server: ServerInfo | None = None
        #: Awaited before each connecting: an embedded server that was killed is started again there.
        self.before_connect: Callable[[], Any] | None = None
        self._availability = availability
        # Each conversation is bounded as a whole; a timer of its own for each reply would cost more than the reply.
        self._pool = ConnectionPool.from_url(
            url, protocol=2, retry=Retry(NoBackoff(), 0), driver_info=None, socket_timeout=None,
            socket_connect_timeout=timeout,
        )  # fmt: skip
        self._connection: AbstractConnection | None = None
        self._scripts: dict[str, Script] = {}
        self._waiting: list[tuple[Call, asyncio.Future[Any]]] = []
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def call(self, call: Call) -> Any:
        """Run a script and return its reply.

        :raises StoreUnavailable: no answer in time, or an answer that means "not now"; it may or may not have run.
        :raises StoreRefused: the server answers, but will never do.
        """
        if self._closed:
            raise StoreUnavailable(f"the connection to {self.shown} is closed")
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, future))
        if self._task is None:
            self._task = asyncio.ensure_future(self._flush())
        return await future

    async def command(self, *args: bytes | str | int) -> Any:
        """Run a plain command outside the pipelines (for people's tools); errors as in :meth:`call`."""
        async with self._guard():
            connection = await self._connected()
            reply = (await self._exchange(connection, [args]))[0]
        if isinstance(reply, BaseException):
            raise self._failure(str(args[0]), reply)
        return reply

    async def close(self) -> None:
        """Close the connection; calls under way fail with :class:`StoreUnavailable`."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        # A task that is cancelled before its first step runs no finally.
        self._give_up_waiting()
        await self._drop()

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting, []
                await self._pipeline(batch)
        finally:
            self._give_up_waiting()

    def _give_up_waiting(self) -> None:
        self._task = None
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(StoreUnavailable(f"the connection to {self.shown} is closed"))
        self._waiting = []

    async def _pipeline(self, batch: list[tuple[Call, asyncio.Future[Any]]]) -> None:
        try:
            async with self._guard():
                replies = await self._run([call for call, _ in batch])
        except (StoreUnavailable, StoreRefused) as error:
            replies = [error] * len(batch)
        except asyncio.CancelledError:
            for _, future in batch:
                if not future.done():
                    future.set_exception(StoreUnavailable(f"the connection to {self.shown} is closed"))
            raise
        for (call, future), reply in zip(batch, replies, strict=True):
            if future.done():
                continue
            if isinstance(reply, BaseException):
                future.set_exception(self._failure(call.script, reply))
            else:
                future.set_result(reply)

    def _failure(self, name: str, error: BaseException) -> BaseException:
        """Turn the error reply to the call or command *name* into ours."""
        if isinstance(error, (StoreUnavailable, StoreRefused)):
            return error
        if isinstance(error, _PASSING) or str(error).startswith(_PASSING_PREFIXES) or "OOM" in str(error):
            if self._availability is not None:
                self._availability.down(str(error))
            return StoreUnavailable(f"the store {self.shown} refused {name}: {error}")
        return StoreRefused(f"the store {self.shown} refused {name}: {error}")

    @contextlib.asynccontextmanager
    async def _guard(self) -> Any:
        """Bound a conversation in time; leave no connection with replies still due."""
        try:
            async with asyncio.timeout(self.timeout):
                yield
        except (AuthenticationError, AuthorizationError, NoPermissionError) as error:
            await self._drop()
            reason = f"{self.setting} = {self.shown!r}: the server refuses the user or password: {error}"
            raise StoreRefused(reason) from None
        except (RedisError, OSError, TimeoutError) as error:
            await self._drop()
            reason = self._reason(error)
            if self._availability is not None:
                self._availability.down(reason)
            raise StoreUnavailable(f"the store {self.shown} does not answer: {reason}") from None
        except StoreUnavailable as error:
            await self._drop()
            if self._availability is not None:
                self._availability.down(str(error))
            raise
        except BaseException:
            await self._drop()
            raise

    def _reason(self, error: BaseException) -> str:
        """Say in few words why there was no answer."""
        if isinstance(error, TimeoutError | ServerTimeout):
            return f"no answer within {self.timeout:g} s"
        cause = error.__cause__ or error.__context__
        if isinstance(cause, ConnectionRefusedError | ConnectionResetError | BrokenPipeError | FileNotFoundError):
            return os.strerror(cause.errno) if cause.errno else "the connection was closed"
        return str(error).rstrip(".")

    async def _run(self, calls: list[Call]) -> list[Any]:
        connection = await self._connected()
        assert self.server is not None
        replies = await self._exchange(connection, [self._evalsha(call) for call in calls])
        missing = [i for i, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if missing:
            # EVAL brings the script along, so no SCRIPT FLUSH can come between.
            again = await self._exchange(connection, [self._eval(calls[i]) for i in missing])
            for i, reply in zip(missing, again, strict=True):
                replies[i] = reply
        if self._availability is not None and not any(isinstance(reply, BaseException) for reply in replies):
            self._availability.up()
        return replies

    def _script(self, name: str) -> Script:
        script = self._scripts.get(name)
        if script is None:
            assert self.server is not None
            script = self._scripts[name] = Script.load(name, shebang=self.server.version >= (7,))
        return script

    def _evalsha(self, call: Call) -> tuple[bytes | str | int, ...]:
        return ("EVALSHA", self._script(call.script).sha, *self._rest(call))

    def _eval(self, call: Call) -> tuple[bytes | str | int, ...]:
        return ("EVAL", self._script(call.script).source, *self._rest(call))

    def _rest(self, call: Call) -> tuple[bytes | str | int, ...]:
        assert self.server is not None
        return (len(call.keys), *call.keys, self.server.run_id, *call.args)

    async def _exchange(
        self, connection: AbstractConnection, commands: Sequence[Sequence[bytes | str | int]]
    ) -> list[Any]:
        self.stats.commands += len(commands)
        self.stats.roundtrips += 1
        packed = [pack_command(tuple(command)) for command in commands]  # type: ignore[arg-type]
        await connection.send_packed_command(packed, check_health=False)
        replies: list[Any] = []
        for _ in commands:
            try:
                replies.append(await connection.read_response())
            except ResponseError as error:
                replies.append(error)
            except ConnectionError as error:
                # redis-py files "LOADING" under connection errors; for a call it is an answer like another.
                if not isinstance(error, BusyLoadingError):
                    raise
                replies.append(error)
        return replies

    async def _connected(self) -> AbstractConnection:
        if self._connection is not None and self._connection.is_connected:
            return self._connection
        if self.before_connect is not None:
            await self.before_connect()
        connection = cast("AbstractConnection", self._pool.make_connection())  # type: ignore[no-untyped-call]
        self._connection = connection
        await connection.connect()  # type: ignore[no-untyped-call]
        replies = await self._exchange(connection, [("INFO", "server"), ("INFO", "memory")])
        for reply in replies:
            if isinstance(reply, BaseException):
                raise reply
        server = ServerInfo.parse(b"\n".join(replies).decode())
        if self.server is not None and server.version != self.server.version:
            self._scripts.clear()
        server.check(self.shown, self.setting)
        self.server = server
        return connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                await connection.disconnect(nowait=True)
