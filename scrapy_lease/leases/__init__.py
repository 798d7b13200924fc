"""The heart: sessions, leases and what becomes of them. Knows neither Scrapy nor Redis."""
