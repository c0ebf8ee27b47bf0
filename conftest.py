"""The suite's fixtures, known to every test below."""

pytest_plugins = ["tests.fixtures"]
