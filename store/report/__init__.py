"""The report: a page about a lake at a snapshot, as HTML and Markdown, every figure with its SQL.

A bare file is a section and defines `build_section(lake)`; its queries are the files of `sql/`.
store/report/page renders sections, and its module `text` escapes the foreign text of the lake.
"""
