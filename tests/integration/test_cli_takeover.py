"""``scrapy-lease queue import --scrapy-redis``: queues that the classes of scrapy-redis themselves have filled."""

from __future__ import annotations

import base64
import json
import os
import pickle
import textwrap
from pathlib import Path
from typing import Any

import pytest
from scrapy import FormRequest, Request, Spider
from scrapy.http import JsonRequest
from scrapy_redis import queue as theirs

from scrapy_lease.payload.wire import read
from tests.helpers.servers import Server
from tests.integration.cli_tool import ROOT, Tool, in_project

KEY = "shop:requests"


class Shop(Spider):
    """The spider whose queue is taken over."""

    name = "shop"

    def parse_product(self, response: Any) -> None:
        """A callback."""


class Json:
    """A serializer as people write it: JSON, in which bytes are text."""

    @staticmethod
    def dumps(stored: dict[str, Any]) -> str:
        return json.dumps(Json._text(stored))

    loads = staticmethod(json.loads)

    @staticmethod
    def _text(value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, dict):
            return {Json._text(key): Json._text(part) for key, part in value.items()}
        return [Json._text(part) for part in value] if isinstance(value, list) else value


def filled(server: Server, requests: list[Request], cls: Any = theirs.PriorityQueue, serializer: Any = Json) -> None:
    """Put *requests* into a queue of scrapy-redis."""
    queue = cls(server.client(), Shop(), "%(spider)s:requests", serializer)
    for request in requests:
        queue.push(request)


def pages(number: int = 5, **options: Any) -> list[Request]:
    return [Request(f"http://a.test/{n}", **options) for n in range(number)]


@pytest.fixture
def tool(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tool:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return Tool(server.url)


def exported(tool: Tool) -> list[dict[str, Any]]:
    """The backlog, in the order in which one slot is fetched."""
    lines = map(json.loads, tool("queue", "export", "--job", "shop").stdout.splitlines())
    return sorted(lines, key=lambda line: line["order"])


def payloads(tool: Tool) -> list[Any]:
    return [read(base64.b64decode(line["payload"])) for line in exported(tool)]


def test_a_json_queue(tool: Tool, server: Server) -> None:
    """All of a request comes along: method, body, headers, cookies, meta, callback, priority; the queue stays."""
    spider = Shop()
    rich = Request(
        "http://a.test/rich", method="PUT", body="x=ü", headers={"X-A": ["1", "2"]}, cookies={"c": "d"}, priority=7,
        meta={"depth": 3, "deep": {"a": [1, None]}}, cb_kwargs={"k": "v"}, callback=spider.parse_product, flags=["f"],
    )  # fmt: skip
    queue = theirs.PriorityQueue(server.client(), spider, KEY, Json)
    for request in (*pages(), FormRequest("http://a.test/form", formdata={"a": "b"}), rich):
        queue.push(request)
    ended = tool("queue", "import", "--scrapy-redis", "shop", "--json")
    assert (ended.status, ended.json) == (0, {"job": "shop", "queue": KEY, "accepted": 7, "duplicate": 0, "wrong": 0})
    assert server.client().zcard(KEY) == 7
    found = {wire.url: wire for wire in payloads(tool)}
    wire = found["http://a.test/rich"]
    assert (wire.method, wire.body.decode(), wire.headers[b"X-A"]) == ("PUT", "x=ü", [b"1", b"2"])
    assert (wire.cookies, wire.meta, wire.cb_kwargs) == ({"c": "d"}, rich.meta, {"k": "v"})
    assert (wire.callback, wire.priority, wire.flags) == ("parse_product", 7, ["f"])
    form = found["http://a.test/form"]
    assert (form.method, form.body, form.cls) == ("POST", b"a=b", "scrapy.http.request.form.FormRequest")


def test_the_order_is_theirs(tool: Tool, server: Server) -> None:
    """A priority queue by priority; a list from its tail, as the FIFO queue of scrapy-redis is read."""
    filled(server, [page.replace(priority=n) for n, page in enumerate(pages())])
    tool("queue", "import", "--scrapy-redis", "shop")
    assert [line["url"][-1] for line in exported(tool)] == list("43210")
    tool("queue", "clear", "--job", "shop", "--yes")
    server.client().delete(KEY)
    filled(server, pages(700), theirs.FifoQueue)
    assert tool("queue", "import", "--scrapy-redis", "shop", "--json").json["accepted"] == 700
    assert [line["url"] for line in exported(tool)] == [page.url for page in pages(700)]


@pytest.mark.parametrize("dont_filter", [False, True])
def test_an_import_can_be_repeated(tool: Tool, server: Server, dont_filter: bool) -> None:
    """What came already is a duplicate; identical requests with dont_filter are as many as the queue holds."""
    filled(server, [*pages(3, dont_filter=dont_filter), *pages(2, dont_filter=dont_filter)], theirs.FifoQueue)
    first = tool("queue", "import", "--scrapy-redis", "shop", "--json").json
    assert (first["accepted"], first["duplicate"]) == ((5, 0) if dont_filter else (3, 2))
    again = tool("queue", "import", "--scrapy-redis", "shop", "--json").json
    assert (again["accepted"], again["duplicate"]) == (0, 5)


def test_pickles_are_not_read_unless_trusted(tool: Tool, server: Server, tmp_path: Path) -> None:
    """A pickled queue is refused, nothing that it says is run and nothing imported; --trust-pickle reads it."""
    filled(server, pages(), serializer=None)
    server.client().zadd(KEY, {pickle.dumps(Touch("refused")): -1})
    refused = tool("queue", "import", "--scrapy-redis", "shop")
    assert refused.status == 1
    assert "--trust-pickle" in refused.stderr
    assert not (tmp_path / "refused").exists()
    assert server.client().hlen("{ns:0}:job:shop:state") == 0
    server.client().zrem(KEY, pickle.dumps(Touch("refused")))
    trusted = tool("queue", "import", "--scrapy-redis", "shop", "--trust-pickle", "--json")
    assert (trusted.status, trusted.json["accepted"]) == (0, 5)


class Touch:
    """Pickled, it writes who reads it, and whether that one knows a secret, into a file."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __reduce__(self) -> Any:
        code = (
            f"import os; open({self.name!r}, 'w').write(f'{{os.getpid()}} {{os.environ.get(\"SECRET\")}}'); print('x')"
        )
        return exec, (code,)


class End:
    """Pickled, it ends the process that reads it."""

    def __reduce__(self) -> Any:
        return os._exit, (3,)


def test_pickles_are_read_in_another_process(
    tool: Tool, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a pickle runs, it runs elsewhere and without our environment; it spoils neither answers nor command."""
    monkeypatch.setenv("SECRET", "s3cret")
    filled(server, pages(2), serializer=None)
    server.client().zadd(KEY, {pickle.dumps(Touch("run")): -9})
    ended = tool("queue", "import", "--scrapy-redis", "shop", "--trust-pickle", "--json")
    assert (ended.status, ended.json["accepted"], ended.json["wrong"]) == (1, 2, 1)
    assert ended.stderr.startswith("request 1: is not the dict of a request")
    pid, secret = (tmp_path / "run").read_text().split()
    assert int(pid) != os.getpid()
    assert secret == "None"
    server.client().zadd(KEY, {pickle.dumps(End()): -9})
    ended = tool("queue", "import", "--scrapy-redis", "shop", "--trust-pickle")
    assert ended.status == 1
    assert "gave no answer" in ended.stderr


def test_what_is_no_request_is_named(tool: Tool, server: Server) -> None:
    """Wrong members are named with their number and fault and left out; the others are imported; exit status 1."""
    filled(server, pages(2), theirs.FifoQueue)
    wrong = [
        b"{", b"[]", b'{"url": 5}', b'{"url": "no url"}', b'{"url": "http://a.test/", "callback": "os.system"}',
        b'{"url": "http://a.test/", "colour": 1}', b'{"url": "http://a.test/", "encoding": "no-such"}',
    ]  # fmt: skip
    server.client().lpush(KEY, *wrong)
    ended = tool("queue", "import", "--scrapy-redis", "shop", "--json")
    assert (ended.status, ended.json["accepted"], ended.json["wrong"]) == (1, 2, len(wrong))
    lines = ended.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == [f"request {number}" for number in range(3, 10)]
    for line, word in zip(lines, ("JSON", "dict", "str", "url", "callback", "colour", "encoding"), strict=True):
        assert word in line


def test_wrong_usage(tool: Tool, server: Server, tmp_path: Path) -> None:
    """Neither a file nor a spider, or both: 2. No such queue, or another server: an error that names it."""
    (tmp_path / "file").touch()
    for arguments in ((), ("file", "--scrapy-redis", "shop"), ("file", "--trust-pickle")):
        assert tool("queue", "import", *arguments).status == 2
    missing = tool("queue", "import", "--scrapy-redis", "shop")
    assert missing.status == 1
    assert "no scrapy-redis queue under 'shop:requests'" in missing.stderr
    other = tool("queue", "import", "--scrapy-redis", "shop", "--from", "redis://:secret@127.0.0.1:1/")
    assert other.status == 1
    assert "127.0.0.1:1" in other.stderr
    assert "secret" not in other.stderr


PROJECT = {
    "scrapy.cfg": "[settings]\ndefault = settings\n",
    "settings.py": """
        BOT_NAME = "ns"
        SPIDER_MODULES = ["spiders"]
        ADDONS = {{"scrapy_lease.Addon": 500}}
        LEASE_REDIS_URL = REDIS_URL = {url!r}
        SCHEDULER_QUEUE_KEY = "waiting:%(spider)s"
        SCHEDULER_QUEUE_CLASS = "scrapy_redis.queue.LifoQueue"
        """,
    "spiders.py": """
        from scrapy import Spider

        class Shop(Spider):
            name = "shop"

            def lease_item_key(self, request):
                return request.url.partition("?")[0]

            def parse_product(self, response):
                yield {{"url": response.url, "data": response.request.data}}
        """,
}


def test_in_the_project_of_the_spider(server: Server, tmp_path: Path) -> None:
    """Settings of scrapy-redis name the queue, a stack is read from its top, keys and callbacks are the spider's."""
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(textwrap.dedent(text).format(url=server.url) if name != "scrapy.cfg" else text)
    spider = Shop()
    queue = theirs.LifoQueue(server.client(), spider, "waiting:shop")
    for n in range(3):
        queue.push(JsonRequest(f"http://a.test/{n}?s={n}", data={"n": n}, callback=spider.parse_product))
    queue.push(Request("http://a.test/2?s=other", callback=spider.parse_product))
    lost = Request("http://a.test/lost").to_dict(spider=spider) | {"callback": "gone"}
    server.client().lpush("waiting:shop", pickle.dumps(lost))
    ended = in_project(tmp_path, "queue", "import", "--scrapy-redis", "shop", "--trust-pickle", "--json")
    assert ended.status == 1, ended.stderr
    assert ended.json == {"job": "shop", "queue": "waiting:shop", "accepted": 3, "duplicate": 1, "wrong": 1}
    assert "'gone'" in ended.stderr
    tool = Tool(server.url)
    assert [wire.url for wire in payloads(tool)] == [
        "http://a.test/2?s=other", "http://a.test/1?s=1", "http://a.test/0?s=0"
    ]  # fmt: skip
    wire = payloads(tool)[1]
    assert (wire.cls.rpartition(".")[2], wire.body, wire.callback) == ("JsonRequest", b'{"n": 1}', "parse_product")
