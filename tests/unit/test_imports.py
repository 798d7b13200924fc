"""Who may import whom: what the design says of the folders, read from the code itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import scrapy_lease
from scrapy_lease import addon

PACKAGE = Path(scrapy_lease.__file__).parent
MODULES = {
    ".".join(["scrapy_lease", *path.relative_to(PACKAGE).with_suffix("").parts]).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imported(module: str) -> Iterator[str]:
    """Every module that *module* imports, also inside functions; of a `from` import the name below it too."""
    path = MODULES[module]
    parents = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = parents[: len(parents) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            yield source
            yield from (f"{source}.{alias.name}" for alias in node.names)


def below(prefix: str) -> list[str]:
    return [module for module in MODULES if module == prefix or module.startswith(f"{prefix}.")]


def belongs(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_the_reader_of_imports_sees_all_forms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain, aliased, relative and nested imports are found, so the other tests here cannot pass by blindness."""
    (tmp_path / "x.py").write_text(
        "import redis.asyncio as r\nfrom . import sibling\nfrom ..up import thing\n"
        "def f():\n    from scrapy import Spider\n"
    )
    monkeypatch.setitem(MODULES, "scrapy_lease.store.x", tmp_path / "x.py")
    found = set(imported("scrapy_lease.store.x"))
    assert {"redis.asyncio", "scrapy_lease.store.sibling", "scrapy_lease.up.thing", "scrapy", "scrapy.Spider"} <= found


@pytest.mark.parametrize("module", below("scrapy_lease.leases"))
def test_leases_know_neither_scrapy_nor_redis_nor_twisted(module: str) -> None:
    """The heart can be run and read without the world around it: it imports the standard library and our exceptions."""
    assert not [name for name in imported(module) if belongs(name, "scrapy", "redis", "twisted", "scrapy_redis")]
    ours = [name for name in imported(module) if belongs(name, "scrapy_lease")]
    assert not [name for name in ours if not belongs(name, "scrapy_lease.leases", "scrapy_lease.exceptions")]


@pytest.mark.parametrize("module", MODULES)
def test_only_the_store_speaks_to_redis(module: str) -> None:
    """redis-py is imported below store/ and nowhere else: one place decides what is sent twice."""
    if not belongs(module, "scrapy_lease.store"):
        assert not [name for name in imported(module) if belongs(name, "redis")]


@pytest.mark.parametrize("module", MODULES)
def test_nothing_of_scrapy_redis_is_imported(module: str) -> None:
    """It is there for projects that name it; whoever does not runs nothing of it."""
    assert not [name for name in imported(module) if belongs(name, "scrapy_redis")]


@pytest.mark.parametrize("module", below("scrapy_lease.store"))
def test_the_store_knows_nothing_of_what_uses_it(module: str) -> None:
    """store/ imports of ours only itself and the exceptions: it serves whoever asks."""
    ours = [name for name in imported(module) if belongs(name, "scrapy_lease")]
    assert not [name for name in ours if not belongs(name, "scrapy_lease.store", "scrapy_lease.exceptions")]


def test_imports_point_one_way() -> None:
    """No module is reached again by following what it imports at its top level: the parts can be read in one order."""
    graph = {module: sorted(_top_level(module)) for module in MODULES}
    done: set[str] = set()

    def visit(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, f"imports go round: {' -> '.join([*way, module])}"
        if module not in done:
            for target in graph[module]:
                visit(target, (*way, module))
            done.add(module)

    for module in graph:
        visit(module, ())


def test_a_crawl_imports_nothing_that_only_others_need() -> None:
    """The parts of a crawl without proxies and accounts bring neither aiohttp nor what only commands use."""
    paths = [path for places in (addon.COMPONENTS, addon.GUARD) for place in places.values() for path in place]
    code = (
        "import sys; from scrapy.utils.misc import load_object\n"
        "for path in sys.argv[1:]: load_object(path)\n"
        "print(*sys.modules)"
    )
    command = [sys.executable, "-c", code, *paths, *addon.SCHEDULERS.values()]
    loaded = set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert {"scrapy_lease.scheduler.core", "scrapy_lease.gate", "redis"} <= loaded
    assert not loaded & {"aiohttp", "yarl", "itemadapter", "pydantic.v1", "click", "rich", "scrapy_lease.cli"}


def _top_level(module: str) -> set[str]:
    """Our modules that *module* imports when it is imported itself, packages' own contents left out."""
    tree = ast.parse(MODULES[module].read_text("utf-8"))
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found.update(name if name in MODULES else node.module for name in names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name in MODULES}
