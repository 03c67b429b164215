"""One harness, one module for each question; ``python -m bench`` asks them all."""
