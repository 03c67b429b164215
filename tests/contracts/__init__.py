"""The public contract kit, on every store and every event loop."""
