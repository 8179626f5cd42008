"""Profiles of one call, and the bottleneck that follows from one."""
