"""Tests as asyncio tasks on the reactor's loop: they can await what asyncio gives, as the code under test does."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

import pytest_twisted
from twisted.internet.defer import Deferred


def on_reactor(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
    """Run a test in a task on the reactor's loop."""

    @functools.wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        await Deferred.fromFuture(asyncio.ensure_future(test(*args, **kwargs)))

    return pytest_twisted.ensureDeferred(run)
