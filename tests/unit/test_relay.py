"""The relay does to real connections what tests of the store rely on."""

from __future__ import annotations

import time

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers.relay import Relay
from tests.helpers.resp import Frames
from tests.helpers.servers import NO_RETRY, Server

pytestmark = pytest.mark.one_server

LOST = (redis.ConnectionError, redis.TimeoutError)

FRAMES = [
    b"+OK\r\n",
    b":1\r\n",
    b"$-1\r\n",
    b"$0\r\n\r\n",
    b"$4\r\na\r\nb\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n",
    b"%1\r\n+k\r\n*1\r\n_\r\n",
    b"|1\r\n+ttl\r\n:5\r\n*1\r\n#t\r\n",
    b">2\r\n+invalidate\r\n*0\r\n",
    b"=8\r\ntxt:a\r\nb\r\n",
    b"~1\r\n,1.5\r\n",
]


def connect(relay: Relay, **options: object) -> redis.Redis:
    """Return a client through the relay that never tries again nor looks whether its connection lives."""
    options = {
        "retry": NO_RETRY,
        "socket_timeout": 5,
        "single_connection_client": True,
        **options,
    }
    return redis.Redis.from_url(relay.url, **options)


@given(st.lists(st.sampled_from(FRAMES)), st.integers(min_value=1, max_value=7))
def test_frames_are_cut_whole(frames: list[bytes], chunk: int) -> None:
    """Any sequence of frames comes out as it went in, however the stream is split."""
    stream, cutter = b"".join(frames), Frames()
    out = [frame for i in range(0, len(stream), chunk) for frame in cutter.feed(stream[i : i + chunk])]
    assert out == frames


def test_forwards_large_values(relay: Relay) -> None:
    """What goes through the relay is unchanged, also far above one chunk."""
    value = bytes(range(256)) * 8192
    with connect(relay) as client:
        client.set("big", value)
        assert client.get("big") == value
        assert client.mget(["big"] * 3) == [value] * 3


def test_delay_makes_round_trips_slow_but_not_narrow(relay: Relay) -> None:
    """`delay` counts once each way for a whole pipeline, and may change while connected."""
    with connect(relay, single_connection_client=False) as client:
        client.ping()
        relay.delay = 0.1
        start = time.monotonic()
        client.pipeline(transaction=False).set("a", b"x" * 300_000).get("a").execute()
        assert 0.2 <= time.monotonic() - start < 0.5
        relay.delay = 0
        client.ping()
        start = time.monotonic()
        client.ping()
        assert time.monotonic() - start < 0.1


def test_cut_drops_and_refuses_until_restore(relay: Relay) -> None:
    """After `cut` open connections are gone and new ones are refused; after `restore` both work."""
    with connect(relay) as client, connect(relay, single_connection_client=False) as fresh:
        client.set("a", 1)
        relay.cut()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        with pytest.raises(redis.ConnectionError, match="refused"):
            fresh.get("a")
        relay.restore()
        assert client.get("a") == fresh.get("a") == b"1"


def test_drop_lets_clients_come_back(relay: Relay) -> None:
    """After `drop` the open connection is gone, and the next one works at once."""
    with connect(relay) as client:
        client.set("a", 1)
        relay.drop()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        assert client.get("a") == b"1"


def test_freeze_keeps_and_thaw_delivers(relay: Relay, server: Server) -> None:
    """A frozen relay accepts a command which the server does not see; thawed, it is executed."""
    with connect(relay, socket_timeout=0.3) as client, connect(relay) as patient:
        relay.freeze()
        patient.connection.send_command("SET", "kept", 1)
        with pytest.raises(redis.TimeoutError):
            client.ping()
        assert server.client().get("kept") is None
        relay.thaw()
        assert patient.connection.read_response() == b"OK"
        assert server.client().get("kept") == b"1"


@pytest.mark.parametrize("k", [1, 2, 3])
def test_swallows_the_kth_reply_of_a_verb(relay: Relay, server: Server, k: int) -> None:
    """The k-th matching command is executed and its sender disconnected; other commands do not count."""
    with connect(relay) as client:
        client.ping()
        swallow = relay.swallow(k, b"\r\nINCRBY\r\n")
        for _ in range(k - 1):
            client.incr("n")
            client.get("n")
        assert not swallow.is_done
        with pytest.raises(LOST):
            client.incr("n")
        assert swallow.wait()
        assert swallow.command is not None
        assert swallow.command.endswith(b"$1\r\nn\r\n$1\r\n1\r\n")
        assert server.client().get("n") == str(k).encode()
        assert client.incr("n") == k + 1


def test_swallow_in_a_pipeline_passes_what_came_before(relay: Relay, server: Server) -> None:
    """Of one pipeline the replies before the swallowed one arrive, and the server executes all of it."""
    with connect(relay) as client:
        connection = client.connection
        swallow = relay.swallow(1, lambda command: b"b" in command.split(b"\r\n"))
        connection.send_packed_command(connection.pack_commands([("SET", key, 1) for key in "abc"]))
        assert connection.read_response() == b"OK"
        with pytest.raises(redis.ConnectionError):
            connection.read_response()
        assert swallow.is_done
        assert server.client().exists("a", "b", "c") == 3


def test_every_swallow_counts_from_its_own_start(relay: Relay) -> None:
    """Two orders at once are independent of each other."""
    with connect(relay) as client:
        client.ping()
        first, second = relay.swallow(1, b"GET"), relay.swallow(2, b"GET")
        with pytest.raises(LOST):
            client.get("a")
        assert (first.is_done, second.is_done) == (True, False)
        with pytest.raises(LOST):
            client.get("a")
        assert second.is_done


def test_counts_commands_and_round_trips(relay: Relay) -> None:
    """A pipeline is many commands and one round trip; a new connection is counted."""
    with connect(relay, single_connection_client=False) as client:
        client.ping()
        commands, trips = relay.commands, relay.round_trips
        client.pipeline(transaction=False).set("a", 1).get("a").incr("a").execute()
        client.ping()
        assert (relay.commands - commands, relay.round_trips - trips) == (4, 2)
        assert (relay.connections, relay.verbs["INCRBY"], relay.verbs["PING"]) == (1, 1, 2)


def test_a_dead_server_looks_dead_through_the_relay(own_relay: Relay, own_server: Server) -> None:
    """When the server is killed its clients are disconnected, and served again when it is back."""
    with connect(own_relay) as client:
        client.set("a", 1)
        own_server.restart()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        assert client.get("a") == b"1"
        own_server.kill()
        with pytest.raises(redis.ConnectionError):
            client.get("a")
