"""Frameworks and libraries, as far as they run in this process."""
