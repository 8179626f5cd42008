"""Reference texts generated from the catalog and the views: docs/tables.md, `store describe`."""

from __future__ import annotations

import tempfile
from typing import Any

import store
from store.lake import sql_files
from store.schema.catalog import Catalog, Table

_ABOUT_BASELINES = "Ways to run a task's own module that kernels are compared with."


def list_columns(table: Table) -> list[dict[str, Any]]:
    """Return one row per column: type, whether required, unit, reference, sensitivity, about."""
    return [
        {
            "column": column.name,
            "type": column.type,
            "required": "yes" if column.required else "",
            "unit": column.unit,
            "references": column.references,
            "sensitivity": column.sensitivity,
            "about": column.about
            + ("" if column.null_means is None else f" NULL: {column.null_means}"),
        }
        for column in table.columns.values()
    ]


def list_view_columns(lake: store.Lake, view: str) -> list[dict[str, Any]]:
    """Return one row per column of a view: its type and what it is."""
    return [
        {
            "column": row["column_name"],
            "type": row["column_type"],
            "about": sql_files.describe_column(view, row["column_name"]) or "",
        }
        for row in lake.run(f"DESCRIBE {view}").rows()
    ]


def find_columns(lake: store.Lake, word: str) -> list[dict[str, Any]]:
    """Return the columns of tables and views whose name or description contains a word."""
    listed = {
        **{table.name: list_columns(table) for table in lake.catalog.tables.values()},
        **{view: list_view_columns(lake, view) for view in sql_files.list_views()},
    }
    return [
        {"table": name, **{key: row[key] for key in ("column", "type", "about")}}
        for name, rows in listed.items()
        for row in rows
        if word.casefold() in f"{row['column']} {row['about']}".casefold()
    ]


def render_tables_page(catalog: Catalog) -> str:
    """Return docs/tables.md. DuckDB tells the columns of views, in an empty lake."""
    views = {
        name: sql_files.read_description(sql_files.read_view(name))
        for name in sql_files.list_views()
    }
    parts = ["# Tables and views", ""]
    parts += ["`make docs` generates this page from catalog.yaml and store/views.", "", "## Views"]
    parts += ["", "| view | about |", "|---|---|"]
    parts += [f"| [{name}](../store/views/{name}.sql) | {about} |" for name, about in views.items()]
    parts += ["", "Their columns follow the tables."]
    for table in catalog.tables.values():
        parts += ["", f"## {table.name}", "", table.about, ""]
        parts.append(
            f"Key: {', '.join(table.key)}. A new row whose key is already stored is "
            + ("dropped." if table.duplicates == "skip" else "refused.")
        )
        rule = table.id
        if rule is not None and rule.form is None:
            parts[-1] += f" The store cannot compute the id. {rule.unbound}"
        elif rule is not None:
            words = f" and the word {rule.kind}" if rule.kind else ""
            exempt = f" Rows with {rule.unless} are exempt." if rule.unless else ""
            parts[-1] += (
                f" The id is the sha256 of {', '.join(rule.of)}{words} (form {rule.form}). The "
                f"store refuses a row with a different id.{exempt}"
            )
        parts += ["", "| column | type | | about |", "|---|---|---|---|"]
        for column in list_columns(table):
            facts = [
                "required" if column["required"] else "",
                f"→ {column['references']}" if column["references"] else "",
                column["sensitivity"] if column["sensitivity"] != "public" else "",
            ]
            about = column["about"] + (f" [{column['unit']}]" if column["unit"] else "")
            note = ", ".join(fact for fact in facts if fact)
            parts.append(f"| {column['column']} | {column['type']} | {note} | {about} |")
        if table.checks:
            parts += ["", "Checks: " + "; ".join(table.checks) + "."]
    with tempfile.TemporaryDirectory() as folder:
        store.writer(folder, author="docs").close()
        with store.open(folder) as lake:
            for view, about in views.items():
                parts += ["", f"## View {view}", "", about, ""]
                parts += ["| column | type | about |", "|---|---|---|"]
                parts += [
                    f"| {row['column']} | {row['type']} | {row['about']} |"
                    for row in list_view_columns(lake, view)
                ]
    parts += ["", "## Baselines", "", _ABOUT_BASELINES, ""]
    parts += ["| baseline | in prompts | about |", "|---|---|---|"]
    for name, baseline in catalog.baselines.items():
        parts.append(f"| {name} | {baseline.words} | {baseline.about} |")
    parts += ["", "## Enumerations", "", "| name | values |", "|---|---|"]
    for name, enum in catalog.enums.items():
        if enum.by is None:
            parts.append(f"| {name} | {', '.join(enum.values)} |")
            continue
        for value, allowed in enum.allowed.items():
            listed = ", ".join(allowed) or "NULL"
            parts.append(f"| {name} when {enum.by} is {value} | {listed} |")
    return "\n".join(parts) + "\n"
