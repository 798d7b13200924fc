"""What the documents list is what there is: stats, commands, keys of request.meta."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from scrapy_lease import meta
from scrapy_lease.cli import main
from scrapy_lease.pools import routing
from scrapy_lease.rates import prices
from scrapy_lease.stats import POOL_STATS, STATS

ROOT = Path(__file__).parents[2]
PLACE = {"proxy": "POOL", "account": "POOL", "rate": "DIMENSION"}


def read(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def commands() -> list[str]:
    """All that can be called: `status`, `queue clear`, and so on."""
    context = click.Context(main)
    found = []
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        subs = command.list_commands(context) if isinstance(command, click.Group) else [""]
        found += [f"{name} {sub}".strip() for sub in subs]
    return found


def test_each_stat_is_listed_once() -> None:
    """docs/operations.md has a row for each stat that is counted, and for no other."""
    counted = [f"lease/{name}" for name in STATS]
    counted += [f"lease/{kind}/{name}/{PLACE[kind]}" for kind, names in POOL_STATS.items() for name in names]
    assert sorted(re.findall(r"^\| `(lease/[^`]+)` \|", read("docs/operations.md"), re.MULTILINE)) == sorted(counted)


@pytest.mark.parametrize("name", ["README.md", "docs/cli.md"])
def test_each_command_is_told_of(name: str) -> None:
    """Whoever reads the documents knows each command; of a group each of its commands too."""
    text = read(name) if name != "README.md" else read(name).partition("## Commands")[2]
    words = set(re.findall(r"[a-z]+", text))
    assert [command for command in commands() if not set(command.split()) <= words] == []


def test_a_command_that_is_not_there_is_not_promised() -> None:
    """The documents say of each that is not in this version that it is not, and nothing else."""
    for name in ("top", "dashboard", "loadtest"):
        assert name not in main.list_commands(click.Context(main))
        for document in ("README.md", "docs/cli.md"):
            assert f"`{name}`" in read(document).partition("Not in this version")[2]


def test_each_key_of_request_meta_is_listed() -> None:
    """docs/settings.md has a row for each key that a spider may set."""
    keys = {meta.ITEM, meta.DONE_TTL, routing.PROXY, routing.ACCOUNT, routing.STICKY, prices.RATE, prices.COST}
    listed = re.findall(r"^\| `(lease_[a-z_]+)` \|", read("docs/settings.md"), re.MULTILINE)
    assert sorted(listed) == sorted(keys)
