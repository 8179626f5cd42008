"""Reference pages that derive from the catalog and the views: docs/tables.md, `store describe`."""

from __future__ import annotations

from typing import Any

from store.lake import reader
from store.schema.catalog import Catalog, ContentId, Table

_ABOUT_BASELINES = "Ways to run a task's own module that kernels are compared with."


def columns(table: Table) -> list[dict[str, Any]]:
    """Return one row per column: type, whether required, unit, reference, sensitivity, about."""
    return [
        {
            "column": column.name,
            "type": column.type,
            "required": "yes" if column.required else "",
            "unit": column.unit,
            "references": column.references,
            "sensitivity": column.sensitivity,
            "about": column.about,
        }
        for column in table.columns.values()
    ]


def _id(made: ContentId) -> str:
    """Return the sentence on how an id is bound to its row."""
    if made.form is None:
        return f"The store cannot compute the id: {made.unbound}"
    words = f" and the word {made.kind}" if made.kind else ""
    exempt = f" Rows with {made.unless} are exempt." if made.unless else ""
    return (
        f"The id is the sha256 of {', '.join(made.of)}{words} (form {made.form}); the store "
        f"refuses another one.{exempt}"
    )


def tables_page(catalog: Catalog) -> str:
    """Return docs/tables.md."""
    parts = [
        "# Tables and views",
        "",
        "Made from catalog.yaml and store/views by `make docs`; a test fails when it is stale.",
        "",
        "## Views",
        "",
        "| view | one row is |",
        "|---|---|",
    ]
    for name in reader.view_names():
        about = reader.about(reader.view_text(name))
        parts.append(f"| [{name}](../store/views/{name}.sql) | {about} |")
    for table in catalog.tables.values():
        parts += ["", f"## {table.name}", "", table.about, ""]
        parts.append(
            f"Key: {', '.join(table.key)}. A second row under a stored key is "
            + ("dropped." if table.duplicates == "skip" else "refused.")
        )
        if table.id is not None:
            parts[-1] += f" {_id(table.id)}"
        parts += ["", "| column | type | | about |", "|---|---|---|---|"]
        for column in columns(table):
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
