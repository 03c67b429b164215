"""The simulation: it finds what is planted, and nothing where nothing is."""
