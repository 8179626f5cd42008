"""Renders the sections of a report as one page."""
