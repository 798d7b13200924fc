"""Rate limits of a crawl: what each request costs, and when it may be sent."""
