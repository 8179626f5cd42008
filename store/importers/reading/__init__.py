"""What importers share: running an importer, and reading the files of known sources."""
