"""Leased proxies as Scrapy sees them: which pool a request goes through, its use of a lease, and how that ends."""
