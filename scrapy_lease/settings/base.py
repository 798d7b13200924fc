"""What the sections of the settings are made of."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel, ConfigDict, Field


def setting(default: Any, meaning: str, *, allowed: str = "", unit: str = "", shown_default: str = "") -> Any:
    """Return a field of a section: its default (or a callable that makes it), and its entry in the reference."""
    extra = {"allowed": allowed, "unit": unit, "default": shown_default}
    make = {"default_factory": default} if callable(default) else {"default": default}
    return Field(**make, description=meaning, json_schema_extra=cast(Any, extra))


class Section(BaseModel):
    """A section; its docstring is its title. Frozen, and nothing that it does not know is taken."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        coerce_numbers_to_str=True,
        validate_default=True,
    )
