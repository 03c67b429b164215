"""Checked for types and never run."""
