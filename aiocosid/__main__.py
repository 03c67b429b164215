"""``python -m aiocosid``: the command line."""

from __future__ import annotations

from .cli import main

__all__ = ()

if __name__ == "__main__":
    main()
