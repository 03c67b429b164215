"""Nothing has to be running: memory and a manual clock."""
