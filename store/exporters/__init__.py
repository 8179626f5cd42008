"""Exporters: one file a format, in which other tools read what a lake holds."""
