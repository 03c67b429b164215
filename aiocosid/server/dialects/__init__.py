"""Protocols of other systems, each in one module, for the clients that exist.

A dialect of HTTP has ``routes(service, ...)``; RESP has a table of commands.
"""

__all__ = ()
