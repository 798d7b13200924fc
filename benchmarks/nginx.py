"""A local nginx that serves list pages of product links and product pages of a few kilobytes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Self

from tests.helpers.servers import LOOPBACK, reserve_port

LINKS_PER_LIST = 100
PARAGRAPHS = 12
#: Addresses at which the site takes the part of a forward proxy too: what a proxy itself takes is not measured.
PROXIES = [f"127.0.65.{number}" for number in range(1, 33)]

CONFIGURATION = """
daemon off; master_process off; {user}
pid {root}/nginx.pid; error_log {root}/error.log;
events {{ worker_connections 512; }}
http {{
  access_log off; keepalive_requests 1000000; default_type text/html;
  client_body_temp_path {root}/body; proxy_temp_path {root}/proxy; fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi; scgi_temp_path {root}/scgi;
  server {{
    listen {host}:{port};
{proxies}
    root {root}/pages;
    location /p/ {{ try_files /product.html =404; }}
  }}
}}
"""

PRODUCT = """<!doctype html><html><head><title>Product</title></head><body>
<nav>{nav}</nav><h1 class="name">A product</h1><span class="price">12.50</span>
<span class="stock">7</span><div class="text">{text}</div></body></html>"""


class Site:
    """nginx on a free loopback port: `/list/0.html` … link to `products` pages below `/p/`."""

    def __init__(self, products: int) -> None:
        binary = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
        if binary is None:
            raise SystemExit("nginx is not installed: this benchmark crawls a page that nginx serves")
        self._binary = binary
        self.products = products
        self.port, self._port_holder = reserve_port()
        self._root = Path(tempfile.mkdtemp(prefix="lease-bench-site-"))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self._write_pages()
        user = "user root;" if os.geteuid() == 0 else ""
        proxies = "\n".join(f"    listen {address}:{self.port};" for address in PROXIES)
        text = CONFIGURATION.format(user=user, root=self._root, host=LOOPBACK, port=self.port, proxies=proxies)
        (self._root / "nginx.conf").write_text(text)
        self._process = subprocess.Popen([self._binary, "-c", str(self._root / "nginx.conf"), "-p", str(self._root)])
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(10)
        self._port_holder.close()
        shutil.rmtree(self._root, ignore_errors=True)

    @property
    def url(self) -> str:
        """The first list page; each list page links to the next."""
        return f"http://{LOOPBACK}:{self.port}/list/0.html"

    @property
    def products_url(self) -> str:
        """What the addresses of all product pages begin with; any number that follows is a page."""
        return f"http://{LOOPBACK}:{self.port}/p/"

    @property
    def proxies(self) -> list[str]:
        """URLs of forward proxies, each of which answers in the place of the site."""
        return [f"http://{address}:{self.port}" for address in PROXIES]

    def _write_pages(self) -> None:
        lists = self._root / "pages" / "list"
        lists.mkdir(parents=True)
        nav = "".join(f'<a href="/c/{n}">Category {n}</a>' for n in range(20))
        text = "<p>A text about the product that is as long as such texts are, and says little.</p>" * PARAGRAPHS
        (self._root / "pages" / "product.html").write_text(PRODUCT.format(nav=nav, text=text * 3))
        numbers = range(self.products)
        for page, first in enumerate(range(0, self.products, LINKS_PER_LIST)):
            part = numbers[first : first + LINKS_PER_LIST]
            links = "".join(f'<li><a class="product" href="/p/{n}">Product {n}</a></li>' for n in part)
            is_last = first + LINKS_PER_LIST >= self.products
            following = "" if is_last else f'<a class="next" href="/list/{page + 1}.html">next</a>'
            (lists / f"{page}.html").write_text(f"<html><body>{following}<ul>{links}</ul></body></html>")

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + 10
        while True:
            try:
                with urllib.request.urlopen(self.url, timeout=2) as answer:
                    answer.read()
                return
            except OSError:
                if time.monotonic() > end or (self._process and self._process.poll() is not None):
                    log = self._root / "error.log"
                    raise SystemExit(f"nginx did not start: {log.read_text() if log.exists() else ''}") from None
                time.sleep(0.05)
