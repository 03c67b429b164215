"""Converters, pure: Java's vectors, NIST's samples, and properties of all of them."""
