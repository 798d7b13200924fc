"""Switched off, and the commands of Scrapy that are no crawls: nothing is leased, no server runs, no file is made."""

from __future__ import annotations

import re
import socket
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import pytest

from scrapy_lease.store.embedded import status
from tests.helpers.fleet import Fleet, environment
from tests.helpers.nursery import start_copy
from tests.helpers.servers import Server

pytestmark = pytest.mark.one_server

#: One product; its page is completed by hand, and the pipeline asks for the lease.
SPIDER = """
    import scrapy
    import scrapy_lease


    class Print:
        def process_item(self, item):
            print("item", item["status"], scrapy_lease.lease_of(item) is not None)
            return item


    class Shopper(scrapy.Spider):
        name = "shopper"
        custom_settings = {"ITEM_PIPELINES": {Print: 1}}

        def __init__(self, base="", **arguments):
            super().__init__(**arguments)
            self.start_urls = [f"{base}/product/1"]

        async def parse(self, response):
            \"\"\"A product.

            @url BASE/product/1
            @returns items 1 1
            @returns requests 0 0
            \"\"\"
            await scrapy_lease.complete(response)
            yield {"status": response.status}


    class Broken(scrapy.Spider):
        name = "broken"

        def parse(self, response):
            \"\"\"Yields nothing, although its contract says one item.

            @url BASE/product/1
            @returns items 1 1
            \"\"\"
    """
QUIET = ("TELNETCONSOLE_ENABLED=False", "REMOTE_CONTROL_ENABLED=False", "LOG_LEVEL=WARNING")
ADDON = 'ADDONS={"scrapy_lease.Addon": 500}'


@dataclass
class Ended:
    """How a command of Scrapy ended, what it printed, and the files that it left in its project."""

    status: int
    stdout: str
    stderr: str
    files: set[str]

    @property
    def outcome(self) -> tuple[int, str, set[str]]:
        """What must not depend on us; a duration is left out."""
        return self.status, re.sub(r"in \d+\.\d+s", "", self.stdout), self.files


class Project:
    """A Scrapy project whose spiders crawl *shop*; no store is named."""

    def __init__(self, folder: Path, shop: Fleet) -> None:
        self.folder = folder / "project"
        self.base = shop.base
        files = {
            "scrapy.cfg": "[settings]\ndefault = quiet.settings\n",
            "quiet/__init__.py": "",
            "quiet/settings.py": "BOT_NAME = 'quiet'\nSPIDER_MODULES = ['quiet.spiders']\n",
            "quiet/spiders.py": textwrap.dedent(SPIDER).replace("BASE", shop.base),
        }
        for name, text in files.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        self._own = self._files()
        # `view` opens a browser on a file in the temporary folder.
        self._environment = environment(BROWSER="true %s", TMPDIR=str(folder), PYTHONWARNINGS="")

    def __call__(self, *command: str, settings: tuple[str, ...] = (ADDON,)) -> Ended:
        options = [part for setting in (*QUIET, *settings) for part in ("-s", setting)]
        with TemporaryFile("w+") as out, TemporaryFile("w+") as err:
            files = {"stdout": out.fileno(), "stderr": err.fileno()}
            ended = start_copy("scrapy", [*command, *options], cwd=self.folder, env=self._environment, **files).wait(60)
            out.seek(0)
            err.seek(0)
            return Ended(ended, out.read(), err.read(), self._files() - self._own)

    def _files(self) -> set[str]:
        return {
            str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if "__pycache__" not in path.parts
        }


@pytest.fixture
def shop(fleet: Callable[..., Fleet]) -> Fleet:
    return fleet(products=1)


@pytest.fixture
def project(shop: Fleet, tmp_path: Path) -> Project:
    return Project(tmp_path, shop)


@pytest.fixture
def untouched() -> Iterator[str]:
    """The URL of a store to which nobody may connect."""
    with socket.create_server(("127.0.0.1", 0)) as store:
        store.setblocking(False)
        yield f"redis://127.0.0.1:{store.getsockname()[1]}/0"
        with pytest.raises(BlockingIOError):
            store.accept()


COMMANDS = {
    "fetch by a spider": ("fetch", "--spider", "shopper", "BASE/product/1"),
    "fetch by an unknown spider": ("fetch", "--spider", "nobody", "BASE/product/1"),
    "view": ("view", "BASE/product/1"),
    "parse": ("parse", "--spider", "shopper", "--noitems", "BASE/product/1"),
    "parse into pipelines": ("parse", "--spider", "shopper", "--pipelines", "-c", "parse", "BASE/product/1"),
    "check": ("check", "shopper"),
    "check in vain": ("check", "broken"),
    "check all": ("check",),
    "shell that fetches": ("shell", "-c", "(fetch('BASE/product/1'), response.url)[1]"),
}
FAILS = {"fetch by an unknown spider", "check in vain", "check all"}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_no_crawl(project: Project, untouched: str, name: str) -> None:
    """It prints, exits and leaves behind what it does without us: no server, no lease, no file, no connection."""
    command = tuple(part.replace("BASE", project.base) for part in COMMANDS[name])
    without, with_us = project(*command, settings=()), project(*command)
    assert (without.status != 0) == (name in FAILS), without.stderr
    assert with_us.outcome == without.outcome, with_us.stderr
    assert not without.files
    assert "scrapy_lease" not in with_us.stderr
    named = project(*command, settings=(ADDON, f"LEASE_REDIS_URL={untouched}", "LEASE_JOB={spider}-{country}"))
    assert named.outcome == without.outcome, named.stderr


def test_a_wrong_value_stops_such_a_command(project: Project) -> None:
    """Values are checked there too: the error is the one of a crawl, nothing is fetched, exit status 1."""
    ended = project("fetch", f"{project.base}/product/1", settings=(ADDON, "LEASE_TTL=soon"))
    assert ended.status == 1
    assert "LEASE_TTL = 'soon'" in ended.stderr
    assert "<h1>" not in ended.stdout


@pytest.mark.parametrize("verb", ["crawl", "runspider"])
def test_crawl_and_runspider_do_lease(project: Project, shop: Fleet, server: Server, verb: str) -> None:
    """Both open a session in the store that is named, and start the embedded server where none is."""
    what = {"crawl": "shopper", "runspider": "quiet/spiders.py"}[verb]
    if verb == "runspider":
        path = project.folder / what
        path.write_text(path.read_text().partition("class Broken")[0])
    base = ("-a", f"base={shop.base}")
    named = project(verb, what, *base, settings=(ADDON, f"LEASE_REDIS_URL={server.url}", "LEASE_DONE_WHEN=manual"))
    assert (named.status, named.stdout, named.files) == (0, "item 200 True\n", set()), named.stderr
    client = server.client()
    assert int(client.hget("{quiet:0}:job:shopper:meta", "done")) == 1
    embedded = project(verb, what, *base, settings=(ADDON, "LEASE_DONE_WHEN=manual"))
    assert (embedded.status, embedded.stdout) == (0, "item 200 True\n"), embedded.stderr
    home = project.folder / ".scrapy" / "lease"
    assert home.is_dir()
    assert not status(home).running


@pytest.mark.parametrize(
    "off",
    [
        ("-s", "LEASE_ENABLED=False"),
        ("-s", "LEASE_ITEMS_ENABLED=False"),
        ("-a", "lease_enabled=no"),
        ("-s", "LEASE_ENABLED=0", "-s", "LEASE_ITEMS_ENABLED=0", "-s", "LEASE_DONE_WHEN=manual"),
    ],
    ids=" ".join,
)
def test_switched_off(project: Project, shop: Fleet, untouched: str, off: tuple[str, ...]) -> None:
    """The crawl runs as without us, also where it completes pages by hand: no store, no file, one warning."""
    for store in ((), (f"LEASE_REDIS_URL={untouched}",)):
        ended = project("crawl", "shopper", "-a", f"base={shop.base}", *off, settings=(ADDON, *store))
        assert (ended.status, ended.stdout, ended.files) == (0, "item 200 False\n", set()), ended.stderr
        (warning,) = ended.stderr.splitlines()
        assert "[scrapy_lease.addon] WARNING: LEASE_" in warning
        assert "is False: this crawl leases nothing" in warning
    assert len(shop.hits("/product/1")) == 2


@pytest.mark.parametrize("switch", ["LEASE_ENABLED", "LEASE_ITEMS_ENABLED"])
@pytest.mark.parametrize("wrong", ["LEASE_WINDOW=none", "LEASE_WINDOWS=3", "LEASE_JOB={country}"])
def test_values_are_checked_although_it_is_off(project: Project, shop: Fleet, switch: str, wrong: str) -> None:
    """A wrong value or name stops the crawl, so that it is found before leases are turned on again."""
    ended = project("crawl", "shopper", "-a", f"base={shop.base}", settings=(ADDON, f"{switch}=False", wrong))
    assert ended.status == 1
    assert ended.stderr.count("ERROR: scrapy-lease cannot start") == 1
    assert wrong.partition("=")[0] in ended.stderr
    assert not shop.hits()
    assert not ended.files
