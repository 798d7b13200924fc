"""The server that a benchmark measures with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.helpers.servers import Server


@contextmanager
def a_server(kind: str) -> Iterator[Server]:
    """Start a server of its own; where there is none of this kind the benchmark ends with a line that says so."""
    try:
        server = Server(kind)
    except pytest.skip.Exception as missing:
        raise SystemExit(str(missing)) from None
    with server:
        yield server
