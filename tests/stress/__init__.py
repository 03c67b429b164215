"""Many processes, killed and failed over; minutes."""
