"""Histories of real processes that take ids from real servers under faults, for others to check.

``python -m tests.evidence``; docs/explanation/evidence.md says what was run and how to check it.
"""
