"""The outcome table: what becomes of a request, seen in real crawls, with the asyncio reactor and with none.

Each row is a spider of `outcome_rows_*.py`, whose docstring states the rule; one process crawls all rows of a
module.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache, partial

import pytest

from tests.integration import (
    outcome_rows_context,
    outcome_rows_download,
    outcome_rows_middleware,
    outcome_rows_spider,
)
from tests.integration.outcome_crawls import Record, Row, run

MODES = ("reactor", "reactorless")
MODULES = (outcome_rows_spider, outcome_rows_middleware, outcome_rows_download, outcome_rows_context)
ROWS = [
    pytest.param(mode, module.__name__, name, row, id=f"{name}-{mode}")
    for mode in MODES
    for module in MODULES
    for name, row in module.ROWS.items()
]
each_row = pytest.mark.parametrize(("mode", "module", "name", "row"), ROWS)

Recorded = Callable[[str, str], tuple[dict[str, Record], dict[str, int]]]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Crawls all rows of a module in a mode, once for all test processes."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    return cache(partial(run, folder=folder))


@pytest.fixture
def record(recorded: Recorded, mode: str, module: str, name: str) -> Record:
    """What was recorded of the row's crawl."""
    return recorded(mode, module)[0][name]


@each_row
def test_outcome(row: Row, record: Record) -> None:
    """Each hand-out of each path becomes what the row says, in this order, and the row notes nothing else."""
    assert record.outcomes == {path: kinds for path, kinds in row.expected.items() if kinds}, record.traces
    assert record.events == (row.events or [])


@each_row
def test_one_outcome_each(row: Row, record: Record) -> None:
    """Each tracked request leaves the downloader once and has one outcome; nothing breaks in the loop."""
    assert record.told == record.downloaded == record.tracked > 0
    assert record.loop_errors == []


@each_row
def test_nothing_in_flight(row: Row, record: Record) -> None:
    """One turn of the loop after the engine closes the scheduler, every outcome is told.

    Where Scrapy itself never ends (a CancelledError of a plain callback or a middleware) there is no end.
    """
    if row.spider.hangs:
        assert (record.in_flight, record.reason) == (-1, "the crawl did not end")
    else:
        assert record.in_flight == 0
        assert record.reason != "the crawl did not end"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("module", [module.__name__ for module in MODULES])
def test_nothing_is_left(recorded: Recorded, mode: str, module: str) -> None:
    """After a crawl nothing of it is kept alive: no entry of a request, no tracker, no crawler."""
    assert recorded(mode, module)[1] == {}


@each_row
def test_trace(row: Row, record: Record) -> None:
    """A failure has a trace of 1 to 20 lines that says why; nothing else has one."""
    for path, outcomes in record.outcomes.items():
        for outcome, trace in zip(outcomes, record.traces[path], strict=True):
            assert (1 <= len(trace.splitlines()) <= 20) == outcome.startswith("failed")


@pytest.mark.parametrize("mode", MODES)
def test_trace_names_the_error(recorded: Recorded, mode: str) -> None:
    """The trace of an exception ends with it."""
    callbacks, _ = recorded(mode, outcome_rows_spider.__name__)
    middlewares, _ = recorded(mode, outcome_rows_middleware.__name__)
    rows = callbacks | middlewares
    for name in ("CallbackRaises", "PipelineRaises", "MiddlewareOutputRaises", "InputRaises"):
        assert rows[name].traces["/page"][0].splitlines()[-1] == "ValueError: on purpose"


@pytest.mark.parametrize("mode", MODES)
def test_closing_reason(recorded: Recorded, mode: str) -> None:
    """CloseSpider closes the crawl with its reason; in a pipeline it does not."""
    rows, _ = recorded(mode, outcome_rows_spider.__name__)
    assert rows["CloseSpiderInGenerator"].reason == "enough"
    assert rows["PipelineRaisesCloseSpider"].reason == "finished"
