"""Values that cross a process border, and reading them from frozen processes."""
