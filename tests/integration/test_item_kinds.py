"""The fence in items of every kind that Scrapy takes: what `lease_of` tells, what LEASE_FENCE_FIELD writes."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.helpers.fleet import Fleet
from tests.helpers.spiders import PRELUDE

pytestmark = pytest.mark.one_server

#: Each kind with the field, without it, and as one that takes no fence although it has the field.
SOURCE = (
    PRELUDE.replace("from __future__ import annotations\n", "")
    + """
import dataclasses, json

import attrs
import pydantic
from itemadapter import ItemAdapter
from scrapy import Field, Item


class Declared(Item):
    name = Field()
    fence = Field()


class DeclaredBare(Item):
    name = Field()


@dataclasses.dataclass
class Data:
    name: str
    fence: int | None = None


@dataclasses.dataclass
class DataBare:
    name: str


@dataclasses.dataclass(frozen=True)
class DataFrozen:
    name: str
    fence: int | None = None


@attrs.define
class Attrs:
    name: str
    fence: int | None = None


@attrs.define
class AttrsBare:
    name: str


@attrs.define
class AttrsStrict:
    name: str
    fence: str = attrs.field(default="", validator=attrs.validators.instance_of(str))


class Model(pydantic.BaseModel):
    name: str
    fence: int | None = None


class ModelBare(pydantic.BaseModel):
    name: str


class ModelStrict(pydantic.BaseModel, validate_assignment=True):
    name: str
    fence: str = ""


KINDS = (
    dict, Declared, DeclaredBare, Data, DataBare, DataFrozen, Attrs, AttrsBare, AttrsStrict, Model, ModelBare,
    ModelStrict,
)


class Record:
    def process_item(self, item):
        lease = scrapy_lease.lease_of(item)
        line = {"fields": ItemAdapter(item).asdict(), "lease": lease and lease._asdict()}
        with open("kinds.jsonl", "a") as file:
            file.write(json.dumps(line) + "\\n")
        return item


class Kinds(ShopSpider):
    custom_settings = {"ITEM_PIPELINES": {Record: 1}, "LEASE_FENCE_FIELD": "fence"}

    async def start(self):
        yield {"name": "start"}
        yield self.page("/product/1")

    def parse(self, response):
        lease = scrapy_lease.lease_of({})
        assert (lease.item, lease.fence, lease.session) == tuple(
            response.meta["lease"][name] for name in ("item", "fence", "session")
        )
        for kind in KINDS * 2:
            yield kind(name=kind.__name__)
"""
)

WITH = {"dict", "Declared", "Data", "Attrs", "Model"}
WITHOUT = {"DeclaredBare", "DataBare", "DataFrozen", "AttrsBare", "AttrsStrict", "ModelBare", "ModelStrict"}


def test_the_fence_reaches_items_of_every_kind(fleet: Callable[..., Fleet]) -> None:
    """Each kind with the field gets it; one without, or that refuses it, is stored as it is, with one warning a class.

    `lease_of` tells pipelines the lease in any case, and none for an item that start() itself yielded.
    """
    shop = fleet(products=1)
    node = shop.run("n0", SOURCE)
    shop.wait(timeout=30)
    lines = [json.loads(line) for line in (shop.folder / "kinds.jsonl").read_text().splitlines()]
    leases = {line["fields"]["name"]: line["lease"] for line in lines}
    assert leases.pop("start") is None
    assert set(leases) == WITH | WITHOUT
    (fence,) = {lease["fence"] for lease in leases.values()}
    assert fence > 0
    fences = [(line["fields"]["name"], line["fields"].get("fence")) for line in lines]
    assert {name for name, written in fences if written == fence} == WITH
    assert {name for name, written in fences if not written} == WITHOUT | {"start"}
    for name in WITHOUT:
        assert node.log.count(f"items of {name} cannot receive the fence") == 1
    assert node.stats["lease/items/done"] == 1
