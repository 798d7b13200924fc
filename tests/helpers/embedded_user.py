"""A process that uses an embedded server as a crawl does: ``python -m tests.helpers.embedded_user DIRECTORY``.

It answers each line of its input (``acquire``, ``ensure``, ``release``) with a line of JSON, and leaves without a
word when the input ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from scrapy_lease.exceptions import EmbeddedServerError
from scrapy_lease.store.embedded import acquire, status

ROOT = Path(__file__).parents[2]
NOBODY = 65534


class User:
    """The test's side of such a process; started by root with `unprivileged` it is nobody's."""

    def __init__(self, directory: Path, *, unprivileged: bool = False) -> None:
        options = ["unprivileged"] if unprivileged else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.helpers.embedded_user", str(directory), *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def ask(self, verb: str) -> None:
        """Send an order without waiting for its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(verb + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the answer to an order."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def do(self, verb: str) -> dict[str, Any]:
        """Send an order and wait for its answer."""
        self.ask(verb)
        return self.answer()

    def interrupt(self) -> None:
        """Send SIGINT to the process and all of its process group, as Ctrl-C does, and wait for its end."""
        os.killpg(self.pid, signal.SIGINT)
        self._process.wait(10)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self._process.kill()
        self._process.wait(10)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


def main(directory: Path) -> None:
    """Obey orders until there are no more."""
    server = None
    for line in sys.stdin:
        try:
            if line.strip() == "acquire":
                server = acquire(directory)
            elif server and line.strip() == "ensure":
                server.ensure_running()
            elif server and line.strip() == "release":
                server.release()
            found = status(directory)
            answer: dict[str, Any] = {"server": found.pid, "url": found.url}
        except EmbeddedServerError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    if sys.argv[2:] == ["unprivileged"] and os.getuid() == 0:
        # After the imports: the interpreter may lie where nobody else may read.
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    main(Path(sys.argv[1]))
