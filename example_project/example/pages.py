"""What the shop sells, and its pages as HTML."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def product(number: int) -> dict[str, str | int]:
    """Product ``number``; ``price`` is in cents."""
    return {
        "sku": f"SKU-{number:06d}",
        "name": f"Thing No. {number}",
        "price": 199 + number * 37 % 9_800,
        "url": f"/product/{number}",
    }


def page(title: str, body: str) -> str:
    """A whole HTML page."""
    return f"<!doctype html><html><head><title>{escape(title)}</title></head><body>{body}</body></html>"


def home() -> str:
    return page("The shop", '<h1>The shop</h1><a href="/lists">All products</a> <a href="/login">Log in</a>')


def product_page(number: int) -> str:
    """The page of one product."""
    return _product_page(number, int(product(number)["price"]), '<a href="/lists">All products</a>')


def members_page(number: int, user: str) -> str:
    """The page of one product as a member sees it: for a tenth less."""
    return _product_page(number, int(product(number)["price"]) * 9 // 10, f'<p id="user">{escape(user)}</p>')


def _product_page(number: int, cents: int, rest: str) -> str:
    shown = product(number)
    return page(
        str(shown["name"]),
        f'<div id="product" data-sku="{shown["sku"]}"><h1>{shown["name"]}</h1>'
        f'<span class="price" data-cents="{cents}">{cents // 100}.{cents % 100:02d}</span></div>{rest}',
    )


def links_page(title: str, numbers: Iterable[int], following: str | None = None) -> str:
    """A page with links to products, and to the page that follows it, if any."""
    links = "".join(f'<li><a class="product" href="/product/{n}">Thing No. {n}</a></li>' for n in numbers)
    more = f'<a class="next" href="{escape(following)}">more</a>' if following else ""
    return page(title, f"<h1>{escape(title)}</h1><ul>{links}</ul>{more}")


def login_page(message: str = "") -> str:
    """The login form."""
    return page(
        "Log in",
        f"<p>{escape(message)}</p>"
        '<form method="post" action="/login">'
        '<input name="user"><input name="password" type="password"></form>',
    )


def account_page(user: str) -> str:
    """What only a logged-in user sees."""
    return page("Account", f'<h1 id="user">{escape(user)}</h1>')
