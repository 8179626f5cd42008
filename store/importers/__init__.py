"""Importers, one file for each format: `store import NAME PATH` reads a source into a lake."""
