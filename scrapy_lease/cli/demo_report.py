"""What ``scrapy-lease demo`` shows: the nodes' hits over time, and the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from scrapy_lease.cli.demo import Demo
    from scrapy_lease.cli.demo_processes import Node

COLUMNS = 40
BARS = " ▁▂▃▄▅▆▇█"
ASCII_BARS = " .:-=+*%#"


class Picture:
    """The table that is shown: a line for each node, with its hits over time."""

    def __init__(self, demo: Demo, console: Console) -> None:
        self.demo = demo
        self.bars = BARS if "utf" in console.encoding else ASCII_BARS

    def __call__(self) -> RenderableType:
        demo = self.demo
        counts, length = demo.example.hits.timeline(demo.hits, COLUMNS)
        waiting = demo.example.hits.open_by_node(demo.hits)
        highest = max((max(line) for line in counts.values()), default=1)
        table = Table("node", "hits", "open", "state", f"hits per {length:.2f} s", box=None, pad_edge=False)
        for node in demo.nodes:
            line = counts.get(node.name, [])
            row = [node.name, str(sum(line)), str(waiting[node.name])]
            table.add_row(*row, state(node), self._line(node, line, highest, length))
        bar = Table.grid(padding=(0, 1))
        asked_for = len(demo.products_hit())
        bar.add_row(
            ProgressBar(total=demo.items, completed=asked_for, width=COLUMNS),
            f"{asked_for} of {demo.items} products, {demo.seconds:.0f} s",
        )
        return Group(table, bar)

    def _line(self, node: Node, counts: list[int], highest: int, length: float) -> Text:
        """A node's hits as a line of bars; an X where it was killed."""
        # Rounded up: a column with a single hit must not look empty.
        bars = [self.bars[-(-count * (len(self.bars) - 1) // highest)] for count in counts]
        line = Text("".join(bars), "cyan")
        if not node.was_killed:
            return line
        column = min(int((self.demo.kill.at - self.demo.hits[0].started) / length), COLUMNS - 1)
        return Text.assemble(line[:column], ("X", "bold red"), line[column + 1 :])


def verdict_table(demo: Demo, verdict: Any) -> Table:
    """The verdict for people."""
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_row("products in the shop", str(verdict.expected), "")
    table.add_row("fetched", str(verdict.fetched), "by the shop's log")
    table.add_row("stored", str(verdict.stored), "by the database")
    table.add_row("lost", mark(len(verdict.lost)), "not fetched, or not stored")
    if demo.kill:
        table.add_row("taken over", str(len(verdict.excused)), f"{demo.kill.node} had them in flight when killed")
    table.add_row("fetched twice", mark(len(verdict.twice - verdict.excused)), "without need")
    if demo.exits:
        addresses = demo.addresses()
        at_most = f"at most {addresses.most} at once on each" if addresses.most > 1 else "one at a time on each"
        table.add_row("IPs used", str(len(addresses.used)), f"of {len(demo.exits)} proxies; requests: {at_most}")
        table.add_row("IPs shared", mark(len(addresses.shared)), "requests of two nodes in flight at once")
        table.add_row("direct", mark(addresses.direct), "requests that went past the proxies")
    if demo.limit:
        table.add_row("worst second", str(demo.worst_window()), f"requests; the limit is {demo.limit}")
    return table


def state(node: Node) -> Text:
    """Whether a node runs, and how it ended."""
    if node.was_killed:
        return Text("killed", "bold red")
    status = node.process.poll()
    if status is None:
        return Text("running", "green")
    return Text("finished", "dim") if status == 0 else Text(f"exit status {status}", "bold red")


def mark(number: int) -> Text:
    """A number that has to be 0."""
    return Text(str(number), "bold red" if number else "bold green")


def verdict_fields(demo: Demo, verdict: Any) -> dict[str, Any]:
    """The verdict for programs; ``folder`` is there afterwards with ``--keep`` only."""
    hits = demo.example.hits.by_node(demo.hits)
    return {
        "products": verdict.expected,
        "fetched": verdict.fetched,
        "stored": verdict.stored,
        "lost": len(verdict.lost),
        "fetched_twice": len(verdict.twice),
        "fetched_twice_in_flight": len(verdict.excused),
        **(_address_fields(demo) if demo.exits else {}),
        "worst_window": demo.worst_window(),
        "limit": demo.limit,
        "killed": demo.kill.node if demo.kill else None,
        "seconds": round(demo.seconds, 1),
        "folder": str(demo.folder),
        "nodes": [
            {"node": node.name, "hits": hits.get(node.name, 0), "exit_status": node.process.returncode}
            for node in demo.nodes
        ],
    }


def _address_fields(demo: Demo) -> dict[str, int]:
    addresses = demo.addresses()
    return {
        "proxies": len(demo.exits),
        "ips_used": len(addresses.used),
        "ips_shared": len(addresses.shared),
        "most_at_once_on_an_ip": addresses.most,
        "direct": addresses.direct,
    }
