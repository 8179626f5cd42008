"""Exporters, one file for each format: `store export NAME FOLDER` writes a lake for other tools."""
