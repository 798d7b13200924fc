"""Lets tests that drive the Twisted reactor and tests that run an event loop of their own share one session.

pytest-twisted keeps the reactor's loop marked as running in the main thread, in which `asyncio.run` is then
refused. Here only tests and fixtures that ask for the reactor see it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_twisted


@contextmanager
def _no_running_loop() -> Iterator[None]:
    running = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(running)


def _asks_for_reactor(function: Any) -> bool:
    tested = getattr(getattr(function, "hypothesis", None), "inner_test", function)
    return pytest_twisted._get_mark(tested) is not None


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, Any, Any]:
    """Sets a plain fixture up outside of the reactor's loop."""
    if _asks_for_reactor(fixturedef.func):
        return (yield)
    with _no_running_loop():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    """Takes the fixtures of a plain test down outside of the reactor's loop."""
    if _asks_for_reactor(getattr(item, "obj", None)):
        return (yield)
    with _no_running_loop():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Runs a plain test outside of the reactor's loop."""
    test = pyfuncitem.obj
    if _asks_for_reactor(test):
        return None
    if inspect.iscoroutinefunction(test):
        pytest.fail("decorate with @pytest_twisted.ensureDeferred, or call asyncio.run in a plain test")
    with _no_running_loop():
        result = test(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames})
    if result is not None:
        pytest.fail(f"the test returned {result!r}, which nobody would look at")
    return True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks `server` each test that starts the server that SCRAPY_LEASE_TEST_SERVER names and that depends on it.

    That is every test whose fixtures start it but those of a module that is marked `one_server`: what they check is
    decided by the node, on replies that are the same from every server. Of these, whoever is marked `each_server`
    stands for the others on each server.

    The state machines come first: they take longest, and would be waited for at the end.
    """
    for item in items:
        depends = not item.get_closest_marker("one_server") or item.get_closest_marker("each_server")
        if depends and "server_kind" in getattr(item, "fixturenames", ()):
            item.add_marker("server")
    items.sort(key=lambda item: "state" not in item.path.parts)
