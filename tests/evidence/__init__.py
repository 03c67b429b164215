"""The checker of histories, ``check.py``, which imports nothing of this repository; its tests.

``python -m tests.chaos all --into FOLDER`` writes histories; docs/explanation/evidence.md says what
was run and how to check it.
"""
