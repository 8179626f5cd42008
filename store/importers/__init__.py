"""Importers, one file per format; `store import NAME PATH` reads one into a lake."""
