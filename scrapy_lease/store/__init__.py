"""The only place that talks to Redis or Valkey: clients, scripts, key names, and the embedded server."""
