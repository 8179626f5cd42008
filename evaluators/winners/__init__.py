"""Loads the winner of a task into the caller's process, for code that the caller trusts."""
