"""Fixtures that every test may use: real servers and the relay in front of one."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "example_project"))

from scrapy_lease.store.embedded import status
from tests.helpers.fleet import Fleet
from tests.helpers.members import Club, MemberBed
from tests.helpers.proxied import Bed
from tests.helpers.proxies import Web
from tests.helpers.relay import Relay
from tests.helpers.servers import Server, need


def pytest_configure() -> None:
    """A shell that starts the tests in the background lets them ignore Ctrl-C, and so would all that they start."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def server_kind() -> str:
    """The server under test, "valkey" or "redis": SCRAPY_LEASE_TEST_SERVER."""
    return os.environ.get("SCRAPY_LEASE_TEST_SERVER", "valkey")


@pytest.fixture(scope="session")
def _shared_server(server_kind: str) -> Iterator[Server]:
    with Server(server_kind) as server:
        yield server


@pytest.fixture
def server(_shared_server: Server) -> Server:
    """An empty server, whose process is shared: a test that stops or configures it takes `own_server`."""
    _shared_server.flush()
    return _shared_server


@pytest.fixture
def make_server(server_kind: str) -> Iterator[Callable[..., Server]]:
    """Starts servers of this test's own, with the options of `Server`."""
    with ExitStack() as stack:
        yield lambda kind=server_kind, **options: stack.enter_context(Server(kind, **options))


@pytest.fixture
def own_server(make_server: Callable[..., Server]) -> Server:
    """A server process of this test's own, to kill, pause and restart."""
    return make_server()


@pytest.fixture
def relay(server: Server) -> Iterator[Relay]:
    """A relay in front of `server`."""
    with Relay(server.url) as relay:
        yield relay


@pytest.fixture
def own_relay(own_server: Server) -> Iterator[Relay]:
    """A relay in front of `own_server`."""
    with Relay(own_server.url) as relay:
        yield relay


@pytest.fixture
def fleet(server: Server, tmp_path: Path) -> Iterator[Callable[..., Fleet]]:
    """Starts a shop whose nodes share `server`, with the options of `Fleet`."""
    with ExitStack() as stack:
        yield lambda url=server.url, **options: stack.enter_context(Fleet(tmp_path, url, **options))


@pytest.fixture
def bed(fleet: Callable[..., Fleet], server: Server) -> Iterator[Callable[..., Bed]]:
    """Opens a site with so many proxies, each an endpoint of its own, and the options of `Web`."""
    with ExitStack() as stack:

        def make(proxies: int = 0, **options: Any) -> Bed:
            web = stack.enter_context(Web(**options))
            web.add_many(proxies)
            return Bed(web, fleet(products=1), server.client())

        yield make


@pytest.fixture
def club(fleet: Callable[..., Fleet], server: Server) -> Iterator[Callable[..., MemberBed]]:
    """Opens a site with so many members, behind so many proxies, and the options of `Web`; *store*: not `server`."""
    with ExitStack() as stack:

        def make(members: int, proxies: int = 0, store: Server = server, **options: Any) -> MemberBed:
            web = stack.enter_context(Web(site=Club, **options))
            web.add_many(proxies)
            return MemberBed(web, fleet(store.url, products=1), store.client(), members)

        yield make


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A directory for an embedded server, which does not exist yet; its server is ended afterwards."""
    need("valkey")
    path = tmp_path / "lease"
    yield path
    if pid := status(path).pid:
        os.kill(pid, signal.SIGKILL)
