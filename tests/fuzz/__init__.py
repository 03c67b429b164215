"""Every parser against texts that nobody meant: by hypothesis, and guided by coverage.

``python -m tests.fuzz --seconds 60`` runs Atheris on each target of `tests.fuzz.targets` in turn.
"""
