"""The processes of ``scrapy-lease demo``: how they are started in the example project, and how they are ended."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

END_TIMEOUT = 5.0
"""Seconds that a process has to follow SIGTERM."""

TAIL_LINES = 25


class Example:
    """The example project beside this package; its modules are found by path, for the package needs none."""

    def __init__(self) -> None:
        self.clone = Path(__file__).resolve().parents[2]
        self.path = self.clone / "example_project"
        if not (self.path / "scrapy.cfg").is_file():
            raise click.ClickException(
                f"the demo crawls the example project; {self.path} is not there. It is part of the source, "
                "not of the installed package: run `scrapy-lease demo` from a clone (pip install -e .)."
            )
        sys.path.insert(0, str(self.path))
        try:
            self.hits: Any = importlib.import_module("example.hits")
            self.products: Any = importlib.import_module("example.products")
            self.addresses: Any = importlib.import_module("example.addresses")
        except ModuleNotFoundError as missing:
            raise click.ClickException(
                f"the example project needs {missing.name}, which is not installed: run "
                f"pip install -e '{self.clone}[example]'"
            ) from missing

    def start(self, *arguments: str, log: Path, **options: Any) -> subprocess.Popen[bytes]:
        """Starts ``python -m ARGUMENTS`` in the project, with stderr in ``log``."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SCRAPY_")}
        paths = [str(self.clone), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        with log.open("ab") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", *arguments],
                cwd=self.path,
                env=environment,
                stdin=subprocess.DEVNULL,
                stderr=stderr,
                # Ctrl-C is for this process alone, which then ends the others in order.
                start_new_session=True,
                **options,
            )

    def serve(self, module: str, *arguments: str, log: Path, running: ExitStack) -> Any:
        """Starts a server of the project, which leaving ``running`` ends; returns what its first line tells."""
        process = self.start(module, *arguments, "--json", log=log, stdout=subprocess.PIPE)
        running.callback(end, [process])
        assert process.stdout is not None
        first_line = process.stdout.readline()
        if not first_line:
            raise click.ClickException(f"{module} did not start:\n{tail(log)}")
        return json.loads(first_line)


@dataclass
class Node:
    """One ``scrapy crawl`` process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    was_killed: bool = False

    @property
    def has_failed(self) -> bool:
        return not self.was_killed and self.process.returncode != 0


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Ends processes: SIGTERM, and SIGKILL for those that do not follow it in time."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    deadline = time.monotonic() + END_TIMEOUT
    for process in processes:
        try:
            process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


def tail(log: Path) -> str:
    """The last lines of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-TAIL_LINES:])
