"""The command line: in this process where it can be, as a process where it has to be."""
