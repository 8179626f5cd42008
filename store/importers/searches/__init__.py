"""What importers of searches share: programs with parents."""
