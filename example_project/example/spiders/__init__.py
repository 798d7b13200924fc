"""The spiders: each number adds one idea to the one before."""
