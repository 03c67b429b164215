"""Everything that is opened and closed: tasks, loops, clocks, forks, and those who wait in line."""
