"""Django's command line for the project of the tests."""

import os
import sys

from django.core.management import execute_from_command_line

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "shop.settings")
if __name__ == "__main__":  # the processes of `test --parallel` may import it
    execute_from_command_line(sys.argv)
