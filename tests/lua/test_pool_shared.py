"""The scripts of a pool share their first part, word for word."""

from __future__ import annotations

from importlib.resources import files

FROM, TO = "-- The same in each script of a pool, from here …\n", "-- … to here.\n"


def test_the_shared_part_is_the_same_everywhere() -> None:
    """A change of it in one script is a change in all."""
    folder = files("scrapy_lease.store") / "lua"
    sources = {path.name: path.read_text("utf-8") for path in folder.iterdir() if path.name.startswith("pool_")}
    assert len(sources) == 6
    assert len({source.partition(FROM)[2].partition(TO)[0] for source in sources.values()}) == 1
