"""The documentation's code blocks run, and what it says is true."""
