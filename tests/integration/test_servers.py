"""The servers that tests run against do what the tests believe."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
import redis

from tests.helpers.servers import NO_RETRY, Server, need


def test_keeps_port_and_data_over_every_end(own_server: Server) -> None:
    """Stop, kill and restart end the process and lose neither the port nor what was in the file."""
    port = own_server.port
    own_server.client().set("kept", 1)
    first = own_server.pid
    own_server.restart()
    own_server.stop()
    assert not own_server.is_running
    with pytest.raises(redis.ConnectionError):
        own_server.client().ping()
    own_server.start()
    own_server.restart(kill=True)
    assert own_server.pid != first
    assert own_server.port == port
    assert own_server.client().get("kept") == b"1"


def test_paused_answers_nothing(own_server: Server) -> None:
    """A paused server keeps connections open and silent until it is resumed."""
    client = own_server.client(socket_timeout=0.2)
    own_server.pause()
    with pytest.raises(redis.TimeoutError):
        client.ping()
    own_server.resume()
    assert client.ping()


def test_clock_steps_both_ways_while_running(make_server: Callable[..., Server]) -> None:
    """The time of the server and of its scripts is what the test sets, also after a restart."""
    server = make_server(clock=True)
    client = server.client()
    for offset in (3600, -3600, 0):
        server.set_clock(offset)
        seen = int(client.eval("return redis.call('TIME')[1]", 0))
        assert abs(seen - time.time() - offset) < 2
    server.set_clock(7200)
    server.restart()
    assert abs(server.client().time()[0] - time.time() - 7200) < 2


@pytest.mark.parametrize("options", [{}, {"unix": True}])
def test_password_and_limits_are_in_force(make_server: Callable[..., Server], options: dict[str, bool]) -> None:
    """Directives given as `config` hold, and `url` carries any password, for TCP and unix sockets."""
    config = {"requirepass": "p@ss/w?rd", "maxmemory": "50mb", "maxmemory-policy": "allkeys-lru"}
    server = make_server(config=config, **options)
    assert server.info("memory")["maxmemory_policy"] == "allkeys-lru"
    with redis.Redis(port=server.port, retry=NO_RETRY) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_tls_is_verified(make_server: Callable[..., Server]) -> None:
    """A TLS server is reached with the authority that `url` names, and only with it."""
    server = make_server("redis", tls=True)
    assert server.client().ping()
    with (
        redis.Redis(port=server.port, ssl=True, retry=NO_RETRY) as stranger,
        pytest.raises(redis.ConnectionError),
    ):
        stranger.ping()


def test_a_missing_server_skips_at_home_and_fails_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names what is missing; where CI is true, that is a failure."""
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-server is not installed"):
        need("no-such-server")
    monkeypatch.setitem(os.environ, "CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no-such-server is not installed"):
        need("no-such-server")
