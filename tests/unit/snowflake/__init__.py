"""Snowflake: layouts and texts by themselves, the generators with a manual clock."""
