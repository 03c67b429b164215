"""Mutation testing: do the tests notice a line that is wrong?  `make mutants`."""
