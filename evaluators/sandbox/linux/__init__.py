"""Means of Linux to restrict a process: Landlock, seccomp, mounts, namespaces, capabilities."""
