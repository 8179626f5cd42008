"""What importers share: running one, and reading the files of known sources."""
