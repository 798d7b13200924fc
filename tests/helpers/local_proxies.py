"""The local proxies of the example project, as a process that tests tell what to do."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import requests

from tests.helpers.fleet import environment


class LocalProxies:
    """Proxies with an exit address each: ``with LocalProxies(3) as proxies``. Numbers count from 1.

    :param options: of ``python -m example.proxies``, such as ``--user=ann``.
    """

    def __init__(self, count: int, *options: str, folder: Path | None = None) -> None:
        self.file = folder / "proxies.txt" if folder else None
        written = [f"--file={self.file}"] if self.file else []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "example.proxies", f"--count={count}", "--json", *written, *options],
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert self._process.stdout is not None
        told = json.loads(self._process.stdout.readline())
        self.control: str = told["control"]
        self.urls: list[str] = told["proxies"]
        self.exits: list[str] = told["exits"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def stop(self) -> int:
        """SIGTERM; return the exit status."""
        self._process.terminate()
        self._process.communicate(timeout=10)
        return self._process.returncode

    def tell(self, number: int, mode: str) -> None:
        """Tell a proxy how to do from now on: ok, ban, page, hang or die."""
        requests.post(f"{self.control}/{number}/{mode}", timeout=10).raise_for_status()

    def asked(self, number: int) -> dict[str, int]:
        """How many requests a proxy was asked for, by how it did."""
        rows: list[dict[str, Any]] = requests.get(self.control, timeout=10).json()
        return dict(rows[number - 1]["asked"])

    def get(self, number: int, url: str, **options: Any) -> requests.Response:
        """Get *url* through a proxy."""
        return requests.get(url, proxies={"http": self.urls[number - 1]}, timeout=10, **options)
