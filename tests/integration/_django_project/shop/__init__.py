"""A project for tests/integration/test_django_project.py, which copies the folder."""
