"""Leased accounts as Scrapy sees them: what one is, its login and cookies, and the requests that it makes."""
