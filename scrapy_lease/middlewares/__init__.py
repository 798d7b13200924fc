"""The middlewares: thin, one hook is one call of what decides."""
