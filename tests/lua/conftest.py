"""A scope and a pool on the server under test, and on a server of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.servers import Server
from tests.lua.pool_bed import PoolBed


@pytest.fixture
def bed(server: Server) -> Iterator[PoolBed]:
    with PoolBed(server) as bed:
        yield bed


@pytest.fixture
def own_bed(own_server: Server) -> Iterator[PoolBed]:
    with PoolBed(own_server) as bed:
        yield bed
