"""What the benchmarks print and write: progress, JSON, Markdown tables, plots."""

from __future__ import annotations

import json
import os
import platform
import signal
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot

HEADINGS = {
    "column": "system, delay of Redis",
    "base": "base",
    "rate": "items/s",
    "ratio": "items/s ÷ base",
    "budget": "budget",
    "cpu_ms_per_item": "CPU ms/item",
    "cpu_ratio": "CPU ÷ base",
    "wall": "whole process, s",
    "server_commands_per_item": "commands/item (server, inside scripts too)",
    "commands_per_item": "commands/item (wire)",
    "roundtrips_per_item": "round trips/item (wire)",
    "own_commands_per_item": "commands/item (stat)",
    "own_roundtrips_per_item": "round trips/item (stat)",
    "failed_runs": "failed runs",
}


def environment() -> dict[str, Any]:
    """Return what the figures depend on: machine, interpreter, versions."""
    packages: dict[str, str | None] = {}
    for name in ("scrapy", "twisted", "scrapy-redis", "redis", "scrapy-lease"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "packages": packages,
    }


def end_in_order() -> None:
    """Make SIGTERM end the servers that a benchmark started, as Ctrl-C does."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))


def progress(run: Any) -> None:
    """Tell people about one finished crawl."""
    what = run.error or f"{run.rate:7.1f} items/s  {run.cpu_ms_per_item:5.2f} ms CPU/item  {run.wall:5.1f} s"
    print(f"round {run.round + 1}  {run.column:<22} {what}", file=sys.stderr, flush=True)


def write(folder: Path, name: str, figures: dict[str, Any]) -> None:
    """Write `name`.json into `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(figures, indent=1, default=str) + "\n")


def table(folder: Path, name: str, rows: Sequence[dict[str, Any]], headings: dict[str, str] = HEADINGS) -> None:
    """Print the rows as a Markdown table and write them to `name`.md."""
    lines = [f"| {' | '.join(headings.values())} |", f"|{'---|' * len(headings)}"]
    lines += [f"| {' | '.join(_cell(row.get(key)) for key in headings)} |" for row in rows]
    lines += [f"\n{row['column']}: {error}" for row in rows for error in row.get("errors", ())]
    text = "\n".join(lines) + "\n"
    (folder / f"{name}.md").write_text(text)
    print(text)


def plot_ratios(folder: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Draw throughput against each one's base: bars for medians, dots for the rounds, lines for budgets."""
    shown = [row for row in rows if row["ratio"] is not None]
    figure, axes = pyplot.subplots(figsize=(8, 0.6 * len(shown) + 1.4))
    for place, row in enumerate(shown):
        axes.barh(place, row["ratio"], color="#4c78a8" if "lease" in row["column"] else "#b0b0b0", height=0.6)
        axes.plot(row["ratios"], [place] * len(row["ratios"]), "k.", markersize=4)
        if row["budget"]:
            axes.plot([row["budget"]] * 2, [place - 0.35, place + 0.35], color="#e45756", linewidth=2)
    axes.set_yticks(range(len(shown)), [row["column"] for row in shown])
    axes.invert_yaxis()
    axes.axvline(1, color="k", linewidth=0.8)
    axes.set_xlabel("items per second ÷ those of the base just before and after (red: budget)")
    figure.tight_layout()
    figure.savefig(folder / "crawl.png", dpi=120)
    pyplot.close(figure)


def plot_series(
    folder: Path, name: str, rows: Sequence[dict[str, Any]], x: str, y: str, labels: tuple[str, str]
) -> None:
    """Draw one measured series over a logarithmic axis."""
    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    axes.plot([row[x] for row in rows], [row[y] for row in rows], "o-", color="#4c78a8")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    figure.tight_layout()
    figure.savefig(folder / f"{name}.png", dpi=120)
    pyplot.close(figure)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
