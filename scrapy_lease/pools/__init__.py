"""What leased proxies and leased accounts have in common: pools that are watched, and requests that use them."""
