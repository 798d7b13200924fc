"""Fields of a provider's answer: dotted paths into it, and literals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


def lookup(value: Any, path: str) -> Any:
    """Return what is at *path* in JSON: names and numbers joined by dots, as ``data.list.0.ip``; "": *value* itself.

    :raises LookupError: there is nothing.
    """
    for step in path.split(".") if path else ():
        if isinstance(value, Mapping):
            value = value[step]
        elif isinstance(value, list) and step.isdecimal():
            value = value[int(step)]
        else:
            raise LookupError(step)
    return value


@dataclass(frozen=True, slots=True, repr=False)
class Field:
    """One field of each entry: at a path, or the same in all."""

    path: str = ""
    literal: str | None = None

    def read(self, entry: Any) -> Any:
        """Return the field of *entry*; None where it has none."""
        if self.literal is not None:
            return self.literal
        try:
            return lookup(entry, self.path)
        except LookupError:
            return None

    def text(self, entry: Any) -> str:
        """Return the field as text; "" where there is none.

        :raises ValueError: it is no string or number.
        """
        value = self.read(entry)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"has at {self.path!r} neither text nor a number")
        return str(value).strip()


def field_of(text: str) -> Field:
    """Read a path, or a literal: ``=text``."""
    return Field(literal=text[1:]) if text.startswith("=") else Field(text)
