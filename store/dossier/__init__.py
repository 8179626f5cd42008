"""Read what a lake knows about one kernel or task."""
