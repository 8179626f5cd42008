"""Importers: one file per format of kernel history; `store import NAME PATH` reads it into a lake."""
