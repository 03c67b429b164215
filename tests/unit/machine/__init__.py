"""Machine ids: who asks, what is remembered, and ids chosen by hand."""
