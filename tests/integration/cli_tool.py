"""``scrapy-lease`` as tests run it, and a session that they play themselves."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from scrapy_lease.cli import main
from scrapy_lease.leases.session import Session
from scrapy_lease.store.client import Channel
from scrapy_lease.store.keys import Namespace
from scrapy_lease.store.scripts import Scripts, Settlement
from scrapy_lease.store.server import StoreStats

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "queue=redis key=fingerprint start=one"


@dataclass
class Ended:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> dict[str, Any]:
        """What it printed for programs; it printed nothing else."""
        value: dict[str, Any] = json.loads(self.stdout)
        return value


class Tool:
    """Runs commands on one namespace, in this process and outside of any project."""

    def __init__(self, url: str, namespace: str = "ns") -> None:
        self.url = url
        self.namespace = namespace

    def __call__(self, *arguments: str, stdin: str | None = None) -> Ended:
        options = ["--url", self.url, "--namespace", self.namespace]
        result = CliRunner().invoke(main, [*options, *arguments], input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(int(result.exit_code), result.stdout, result.stderr)

    def status(self, job: str) -> dict[str, Any]:
        """What `status` tells about one job."""
        (found,) = self("status", "--job", job, "--why", "--json").json["jobs"]
        return dict(found)

    def play(self, job: str, part: Callable[[Scripts, str], Coroutine[Any, Any, None]], node: str = "player") -> None:
        """Open a session of *job*, run *part* with it and leave it as it is then: open, unless *part* closed it."""

        async def run() -> None:
            scripts = Scripts(Channel(self.url, "store", 5, StoreStats()), Namespace(self.namespace).scope(job))
            info = {"node": node, "job": job, "pid": "1"}
            session = Session(node=node, ttl=30, config=CONFIG, fresh=True, info=info)
            await session.open(scripts)
            await part(scripts, session.sid)
            await scripts.channel.close()

        asyncio.run(run())


async def bury_all(scripts: Scripts, sid: str) -> None:
    """Lease all that is ready, send it to the dead letters and close the session."""
    _, grants = await scripts.lease(sid, 1, want=100, rooms={})
    args = ("ValueError", "Traceback: on purpose")
    await scripts.settle(sid, 1, [Settlement(grant.digest, grant.fence, "dead", args) for grant in grants])
    await scripts.close(sid)
    await scripts.reclaim(sid, deaths=5, policy="refetch")


async def finish_all(scripts: Scripts, sid: str) -> None:
    """Lease all that is ready, mark it done for good and close the session."""
    _, grants = await scripts.lease(sid, 1, want=100, rooms={})
    await scripts.settle(sid, 1, [Settlement(grant.digest, grant.fence, "done", ("keep",)) for grant in grants])
    await scripts.close(sid)
    await scripts.reclaim(sid, deaths=5, policy="refetch")


def in_project(folder: Path, *arguments: str, program: str = "scrapy_lease.cli") -> Ended:
    """Run ``scrapy-lease`` or, as *program*, ``scrapy.cmdline`` in a process of its own, in the project of *folder*."""
    entry = {"scrapy_lease.cli": "main", "scrapy.cmdline": "execute"}[program]
    process = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"from {program} import {entry}; {entry}()", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ended(process.returncode, process.stdout, process.stderr)
