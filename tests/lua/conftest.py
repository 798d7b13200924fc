"""A scope on the server under test, and one on a server of the test's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.servers import Server
from tests.lua.bed import Bed


@pytest.fixture
def bed(server: Server) -> Iterator[Bed]:
    with Bed(server) as bed:
        yield bed


@pytest.fixture
def own_bed(own_server: Server) -> Iterator[Bed]:
    with Bed(own_server) as bed:
        yield bed
