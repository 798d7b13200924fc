"""Makes the settings reference out of the model."""

from __future__ import annotations

from typing import Any, cast

from pydantic import BaseModel

from scrapy_lease.settings.sources import PREFIX

_HEAD = """\
# Settings

<!-- Made by `make docs` from scrapy_lease/settings/sections.py: change that instead. -->

Every setting `LEASE_X` may also be a spider attribute `lease_x`. The first of these that gives it counts:

1. an attribute of the spider instance: `-a lease_x=…`, or set in `__init__`
2. `-s LEASE_X=…`
3. an attribute of the spider class
4. `custom_settings`
5. `settings.py`
6. the default

Strings, which is what `-a` and `-s` give, are read as the type that the setting has; `None` counts as not
given. A value that is not allowed and an unknown `LEASE_…` setting stop the crawl before its first request,
with one error that names all of them. An unknown `lease_…` attribute of a spider is a warning.
"""

_META = """\
## request.meta

What a spider may set in the meta of a request, for this request alone:

| key | value | meaning |
|---|---|---|
| `lease_item` | a string, or `False` | Its item key, whatever `LEASE_ITEM_KEY` says; `False`: it is no item. |
| `lease_done_ttl` | seconds | In the place of `LEASE_DONE_TTL`. |
| `lease_proxy` | a pool, a list of pools, or `False` | In the place of `LEASE_PROXY_POOL`; `False`: directly. |
| `lease_sticky` | a string | Requests of the same text go through the same proxy. |
| `lease_account` | a pool, a list of pools, or `False` | In the place of `LEASE_ACCOUNT_POOL`; `False`: as nobody. |
| `lease_rate` | `False` | No rate limit holds for it. |
| `lease_rate_cost` | a whole number from 1 | How many permits it takes of each limit (1). |

`response.meta["lease"]` tells of the fetch: `item`, `fence`, `session`, and in the form shown to people `proxy` and
`account`, each `None` where there is none. A copy of it in the meta of another request leases nothing.
"""


def reference(model: type[BaseModel]) -> str:
    """Return the reference of *model*, whose bases are its sections, as Markdown."""
    sections = (base for base in model.__bases__ if issubclass(base, BaseModel))
    return "\n".join([_HEAD, *map(_section, sections), _META])


def _section(section: type[BaseModel]) -> str:
    rows = [
        f"## {section.__doc__}\n",
        "| setting | default | unit | allowed | meaning |",
        "|---|---|---|---|---|",
    ]
    for name, field in section.model_fields.items():
        extra = cast("dict[str, str]", field.json_schema_extra)
        default = extra["default"] or f"`{_shown(field.default)}`"
        cells = (
            f"`{PREFIX}{name.upper()}`",
            default,
            extra["unit"] or "–",
            extra["allowed"],
            field.description or "",
        )
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows) + "\n"


def _shown(default: Any) -> str:
    return f'"{default}"' if isinstance(default, str) else f"{default}"
