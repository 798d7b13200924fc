"""The table of products, and the one statement that writes it.

A fence is a number that rises with every grant of a lease. A holder that lost its lease and does not know it
yet may write late; its fence is lower than that of the new holder, so its write changes nothing. Comparison
and write are one statement: two statements would leave a gap for the other holder.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import (
    URL,
    BigInteger,
    Column,
    DateTime,
    Insert,
    Integer,
    MetaData,
    String,
    Table,
    case,
    create_engine,
    func,
    make_url,
    select,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.schema import CreateTable

BUSY_TIMEOUT = 30.0
"""Seconds that a writer waits for other writers of the same SQLite file."""

CREATE_TRIES = 4

products = Table(
    "products",
    MetaData(),
    Column("sku", String(64), primary_key=True),
    Column("name", String(255), nullable=False),
    Column("price", Integer, nullable=False, comment="cents"),
    Column("url", String(2000), nullable=False),
    Column("fence", BigInteger, nullable=False),
    Column("node", String(255), nullable=False),
    Column("updated", DateTime(timezone=True), nullable=False),
)
VALUES = [column.name for column in products.c if column.name not in ("sku", "fence")]


def _on_conflict(insert: sqlite.Insert | postgresql.Insert) -> Insert:
    new = insert.excluded
    return insert.on_conflict_do_update(
        index_elements=["sku"],
        set_={name: new[name] for name in [*VALUES, "fence"]},
        where=products.c.fence <= new.fence,
    )


def _on_duplicate_key(insert: mysql.Insert) -> Insert:
    new = insert.inserted
    newer = products.c.fence <= new.fence
    # Assigned from left to right, each seeing those before it: the fence that is compared must change last.
    return insert.on_duplicate_key_update(
        [(name, case((newer, new[name]), else_=products.c[name])) for name in [*VALUES, "fence"]]
    )


def upsert(dialect: str) -> Insert:
    """The statement that stores a row unless the stored one has a higher fence.

    Its parameters are all columns but ``updated``, which is the database's own time: hosts' clocks differ.
    ValueError for a dialect other than sqlite, postgresql, mysql and mariadb.
    """
    now = {"updated": func.current_timestamp()}
    if dialect == "sqlite":
        return _on_conflict(sqlite.insert(products).values(now))
    if dialect == "postgresql":
        return _on_conflict(postgresql.insert(products).values(now))
    if dialect in ("mysql", "mariadb"):
        return _on_duplicate_key(mysql.insert(products).values(now))
    raise ValueError(f"SHOP_DATABASE_URL: {dialect!r} is none of sqlite, postgresql, mysql, mariadb; use one")


class ProductTable:
    """The table in one database; every method blocks and may be called from any thread.

    ``url`` is an SQLAlchemy URL. ValueError when it is none or its dialect is not supported, ImportError when
    its driver is not installed.
    """

    def __init__(self, url: str, pool_size: int = 4) -> None:
        parsed = _parsed(url)
        self._upsert = upsert(parsed.get_backend_name())
        options = {"timeout": BUSY_TIMEOUT} if parsed.get_backend_name() == "sqlite" else {}
        # Every write is one statement, so every statement is a transaction of its own.
        self._engine = create_engine(parsed, pool_size=pool_size, isolation_level="AUTOCOMMIT", connect_args=options)

    def create(self) -> None:
        """Makes the table unless it is there; any number of processes may do so at once."""
        for _ in range(CREATE_TRIES - 1):
            try:
                return self._try_create()
            except DBAPIError:
                # Some databases trip when two processes create the same table: the loser finds it done.
                time.sleep(0.1)
        return self._try_create()

    def _try_create(self) -> None:
        with self._engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA journal_mode=WAL")
            connection.execute(CreateTable(products, if_not_exists=True))

    def save(self, row: Mapping[str, Any]) -> None:
        """Stores a row (all columns but ``updated``) unless the stored one has a higher fence."""
        with self._engine.connect() as connection:
            connection.execute(self._upsert, dict(row))

    def rows(self) -> list[dict[str, Any]]:
        """All rows, by sku."""
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.execute(select(products).order_by("sku")).mappings()]

    def close(self) -> None:
        """Closes the idle connections."""
        self._engine.dispose()


def _parsed(url: str) -> URL:
    try:
        return make_url(url)
    except ArgumentError:
        # The library's own error shows the text, and with it a password.
        raise ValueError("SHOP_DATABASE_URL is not a database URL; one is sqlite:///shop.db") from None


@contextmanager
def opened(url: str) -> Iterator[ProductTable]:
    """The table at ``url``, created if need be, closed at the end."""
    table = ProductTable(url)
    try:
        table.create()
        yield table
    finally:
        table.close()
