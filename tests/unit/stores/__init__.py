"""Stores that need no server."""
