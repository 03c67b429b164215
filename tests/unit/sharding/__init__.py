"""Sharding: which node holds a key, and which hold a range of keys."""
