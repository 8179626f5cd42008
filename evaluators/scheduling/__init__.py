"""What to judge, where, and in which process."""
