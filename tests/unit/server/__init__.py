"""The id service, as far as it needs no server."""
