"""Protocols of other systems, each in its own module, for existing clients.

An HTTP dialect has ``routes(service, ...)``; RESP has a table of commands.
"""

__all__ = ()
