"""The report: a page about a lake at a snapshot, as HTML and Markdown, every figure with its SQL.

A file without an underscore is a section and defines `section(lake)`; its questions are the files
of `sql/`. A lake holds text that models and strangers wrote: `_text` makes it inert.
"""
