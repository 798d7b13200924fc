"""The directory of an embedded server: its files, its locks and what is written down about it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from scrapy_lease.exceptions import EmbeddedServerError

#: Seconds between two looks at something that is waited for.
POLL = 0.02

_LONGEST_SOCKET_PATH = 103  # bytes; 108 on Linux and 104 on macOS hold a final NUL too


class Lock:
    """An exclusive lock on a file, held from :meth:`take` until :meth:`close` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_held = False
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def take(self) -> bool:
        """Return whether this object holds the lock now; never waits."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        self.is_held = True
        return True

    def remove(self) -> None:
        """Remove the file; the lock is of use to nobody any more."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Drop the lock, unless a child process was given it; again: does nothing."""
        self.is_held = False
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Home:
    """A server's directory; what writes or counts must be called inside :meth:`locked`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.expanduser().resolve()
        self._users = self.directory / "users"
        self._state = self.directory / "state.json"

    @property
    def exists(self) -> bool:
        """Whether a server was ever started here."""
        return (self.directory / "lock").exists()

    @property
    def socket_path(self) -> Path:
        """Where the server listens."""
        return Path(self._read_state()["socket"])

    @property
    def url(self) -> str:
        """The URL of the socket, for a client."""
        return f"unix://{quote(str(self.socket_path))}"

    @property
    def is_pinned(self) -> bool:
        """Whether the server stays when its last user leaves."""
        return bool(self._read_state()["pinned"])

    def prepare(self) -> None:
        """Make the directory, for this user only.

        :raises EmbeddedServerError: it cannot be made or written.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._users.mkdir(mode=0o700, exist_ok=True)
            Lock(self.directory / "lock").close()
        except OSError as error:
            raise self.error(
                f"cannot be written: {error.strerror}. Name one that can: LEASE_REDIS_URL = embedded:///path/to/directory"
            ) from None

    @contextlib.contextmanager
    def locked(self, timeout: float) -> Iterator[None]:
        """Hold the directory's lock.

        :raises EmbeddedServerError: it was not to be had within *timeout* seconds.
        """
        try:
            lock = Lock(self.directory / "lock")
        except OSError as error:
            raise self.error(f"cannot be written: {error.strerror}") from None
        try:
            end = time.monotonic() + timeout
            while not lock.take():
                if time.monotonic() > end:
                    raise self.error(
                        f"stayed locked for {timeout:g} s by a process that starts or stops its server; "
                        "end that process if it hangs"
                    )
                time.sleep(POLL)
            yield
        finally:
            lock.close()

    def register(self) -> Lock:
        """Enter this process among the users; the returned lock is the entry."""
        user = Lock(self._users / f"{os.getpid()}-{secrets.token_hex(4)}")
        user.take()
        return user

    def users(self) -> tuple[int, ...]:
        """Return the process ids of the users that live, and forget those that died."""
        alive = []
        for path in self._users.glob("[0-9]*-*"):
            user = Lock(path)
            if user.take():
                user.remove()
            else:
                alive.append(int(path.name.split("-")[0]))
            user.close()
        return tuple(sorted(alive))

    def pin(self, pinned: bool) -> None:
        """Note whether the server stays when its last user leaves."""
        self._note(pinned=pinned)

    def error(self, what: str) -> EmbeddedServerError:
        """Return an error about this directory."""
        return EmbeddedServerError(f"embedded server: the directory {self.directory} {what}")

    def place_socket(self) -> Path:
        """Choose where the server is to listen, make the place and write it down.

        :raises EmbeddedServerError: there is no safe place.
        """
        path = self._socket_path()
        if path.parent != self.directory:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            # In a directory that all may write, another user may have been first.
            found = path.parent.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise self.error(
                    f"is too long for a socket, and {path.parent} is not a directory of this user alone; "
                    "remove it or name a shorter directory: embedded:///path"
                )
        self._note(socket=str(path))
        return path

    def _socket_path(self) -> Path:
        name = hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:16]
        short = Path(f"scrapy-lease-{os.getuid()}") / f"{name}.sock"
        # TMPDIR may be as long as the directory is.
        places = (self.directory / "server.sock", tempfile.gettempdir() / short, "/tmp" / short)
        return next((place for place in places if len(os.fsencode(place)) <= _LONGEST_SOCKET_PATH), places[-1])

    def _read_state(self) -> dict[str, Any]:
        state = {"socket": str(self._socket_path()), "pinned": False}
        with contextlib.suppress(OSError, ValueError, TypeError):
            state |= json.loads(self._state.read_text())
        return state

    def _note(self, **changes: Any) -> None:
        fresh = self._state.with_suffix(".new")
        fresh.write_text(json.dumps(self._read_state() | changes))
        fresh.replace(self._state)
