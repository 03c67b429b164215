"""Everything that is opened and closed: tasks, loops, clocks, forks, and waiting callers."""
