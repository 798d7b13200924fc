"""The product, and how it is read from a product page."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scrapy.http import TextResponse


@dataclass
class Product:
    """One product of the shop; ``price`` is in cents."""

    sku: str
    name: str
    price: int
    url: str


def product_from(response: TextResponse) -> Product:
    """The product that a product page shows; ValueError when the page is none."""
    page = response.css("#product")
    sku = page.attrib.get("data-sku")
    price = page.css(".price::attr(data-cents)").get()
    if sku is None or price is None:
        raise ValueError(f"{response.url} is not a product page")
    return Product(sku, page.css("h1::text").get(default=""), int(price), response.url)
