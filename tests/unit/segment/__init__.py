"""Segments: the pure rooms by themselves, the generators with a manual clock and stores at hand."""
