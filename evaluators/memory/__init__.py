"""Values that pass between processes in shared memory, or are read from a frozen process."""
