"""Settings that are a list, or a file of it: each entry with where it stands, and all that is wrong in one error."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

_MOST_TOLD = 5


def numbered(entries: Sequence[object]) -> Iterator[tuple[str, object]]:
    """Yield each entry, with where it stands."""
    yield from ((f"entry {number}", entry) for number, entry in enumerate(entries, 1))


def in_json(text: str) -> Iterator[tuple[str, object]]:
    """Yield the entries of *text*, which begins like a JSON list.

    :raises ValueError: it is none.
    """
    try:
        entries = json.loads(text)
    except ValueError:
        raise ValueError("begins like a JSON list and is none") from None
    yield from numbered(entries)


def in_file(path: str, otherwise: str) -> Iterator[tuple[str, str]]:
    """Yield each line of a file, with where it stands.

    :param otherwise: what *path* might have been instead, for the error.
    :raises ValueError: it cannot be read.
    """
    try:
        text = Path(path).expanduser().read_text("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("names a file that is no UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it cannot be opened"
        raise ValueError(f"is neither {otherwise} nor a file that can be read: {reason}") from None
    yield from ((f"line {number}", line) for number, line in enumerate(text.splitlines(), 1))


def refuse(wrong: Sequence[str]) -> None:
    """Raise ValueError with the first few of what is *wrong*, if anything is."""
    if wrong:
        more = f"; and {len(wrong) - _MOST_TOLD} more" if len(wrong) > _MOST_TOLD else ""
        raise ValueError("; ".join(wrong[:_MOST_TOLD]) + more)
