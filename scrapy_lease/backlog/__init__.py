"""Where requests wait for a lease."""
