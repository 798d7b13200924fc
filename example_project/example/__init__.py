"""A Scrapy project that shows scrapy-lease, and the local shop that it crawls."""
