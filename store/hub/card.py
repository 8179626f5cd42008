"""README.md of an edition: metadata for the Hub's viewer, and a description for readers.

Every text from a lake is treated as hostile. A YAML writer quotes it in the front matter, and the
body contains it as character references, which cannot form Markdown, HTML or links.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from store import __version__
from store.commandline.display import format_cell
from store.hub import licenses, viewer
from store.hub.edition_writer import CATALOG, MANIFEST, Edition
from store.lake.location import FolderLocation
from store.lake.reader import Lake
from store.lake.sql_files import read_sql

if TYPE_CHECKING:
    import jinja2

README = "README.md"
FIGURE = "figure.png"
TEMPLATES = Path(__file__).parent / "templates"
SHOWN = 60
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 -.,")
_WIDTH_IN, _HEIGHT_IN, _DPI = 7.0, 3.6, 110


def write_card(made: Edition) -> None:
    """Write README.md and its figure into the folder of an edition.

    Their content is queried from the frozen lake in that folder, so they can contain nothing but
    published data.
    """
    with Lake(FolderLocation(made.folder)) as lake:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        rows = lake.run(read_sql(__file__, "card_figure")).rows()
        figure = Figure(figsize=(_WIDTH_IN, _HEIGHT_IN), dpi=_DPI, layout="tight")
        axes = figure.add_subplot()
        if rows:
            for device in dict.fromkeys(row["device"] for row in rows):
                own = [row for row in rows if row["device"] == device]
                middle = [row["speedup"] for row in own]
                # matplotlib refuses an interval that does not contain the speedup.
                low = [max(0.0, row["speedup"] - row["speedup_low"]) for row in own]
                high = [max(0.0, row["speedup_high"] - row["speedup"]) for row in own]
                axes.errorbar(
                    range(1, len(own) + 1),
                    middle,
                    yerr=[low, high],
                    fmt="o",
                    markersize=4,
                    capsize=2,
                    label=json.dumps(format_cell(f"{device} ({len(own)} tasks)"))[1:-1]
                    .replace("\\", "")
                    .replace("$", r"\$"),
                )
            axes.axhline(1.0, color="0.5", linewidth=0.8)
            axes.set_yscale("log")
            axes.set_xlabel("tasks, by speedup")
            axes.set_ylabel("best speedup over eager")
            axes.legend(fontsize=8)
        else:
            counts = {name: sum(one.rows for one in files) for name, files in made.tables.items()}
            shown = {name: count for name, count in counts.items() if count}
            axes.barh(list(shown), list(shown.values()))
            axes.set_xscale("log")
            axes.set_xlabel("rows")
            axes.invert_yaxis()
        # Without a program name or a time, the same rows give the same picture.
        FigureCanvasAgg(figure).print_png(made.folder / FIGURE, metadata={"Software": None})
        text = render_card(lake, made)
    (made.folder / README).write_text(text, "utf-8")


def render_card(lake: Lake, made: Edition) -> str:
    """Return the text of README.md."""
    import yaml

    configs: list[dict[str, Any]] = []
    for name in (*made.datasets, *made.tables):
        files = made.shards(name)
        if not files:
            continue
        configs.append(
            {
                "name": name,
                "split": made.split(name),
                "rows": sum(one.rows for one in files),
                "bytes": sum(one.bytes for one in files),
                "raw_bytes": sum(one.raw_bytes for one in files),
                "files": len(files),
                "dataset": made.datasets.get(name),
            }
        )
    most = max((one["rows"] for one in configs), default=0)
    named = [str(one["name"]) for one in configs]
    default = next((name for name in named if name in (*made.datasets, "kernels")), named[0])
    names = sorted({license for _, license, _ in made.licenses})
    head = yaml.dump(
        {
            **licenses.build_hub_field(names),
            "pretty_name": made.repo.rpartition("/")[2],
            "size_categories": [viewer.name_size(most)],
            "task_categories": ["text-generation"],
            "language": ["code"],
            "tags": [
                *("gpu", "cuda", "triton", "kernels", "code-generation", "reinforcement-learning"),
                "kernel-flywheel",
            ],
            "configs": [
                {
                    "config_name": one["name"],
                    "data_files": [
                        {
                            "split": one["split"],
                            "path": f"data/{one['name']}/{one['split']}-*.parquet",
                        }
                    ],
                }
                | ({"default": True} if one["name"] == default else {})
                for one in configs
            ],
            "dataset_info": [
                {
                    "config_name": one["name"],
                    "features": viewer.describe_features(made.schemas[one["name"]]),
                    "splits": [
                        {
                            "name": one["split"],
                            "num_bytes": one["raw_bytes"],
                            "num_examples": one["rows"],
                        }
                    ],
                    "download_size": one["bytes"],
                    "dataset_size": one["raw_bytes"],
                }
                for one in configs
            ],
        },
        Dumper=yaml.CSafeDumper,
        sort_keys=False,
        width=1000,
    )
    body = read_template(TEMPLATES / "card.md.j2").render(
        made=made,
        configs=configs,
        example=default,
        empty=[name for name, files in made.tables.items() if not files],
        evaluators=lake.run(read_sql(__file__, "card_evaluators")).rows(),
        spreads=lake.run(read_sql(__file__, "card_spreads")).rows(),
        shapes=lake.run(read_sql(__file__, "card_shapes")).rows(),
        sources=lake.run(read_sql(__file__, "card_sources")).rows(),
        tables=[lake.catalog.table(name) for name in made.tables],
        private=[
            f"{name}.{column.name}"
            for name in made.tables
            for column in lake.catalog.table(name).columns.values()
            if column.sensitivity == "private"
        ],
        version=__version__,
        manifest=MANIFEST,
        catalog=CATALOG,
        figure=FIGURE,
    )
    return f"---\n{head}---\n\n{body}"


def read_template(file: Path) -> jinja2.Template:
    """Return a template of a card, in which the filter `inert` neutralizes foreign texts."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(file.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inert"] = neutralize
    return environment.get_template(file.name)


def neutralize(value: object) -> str:
    """Return a text for the body of a card: one line, no markup, nothing that becomes a link.

    >>> neutralize("<img src=x> [a](b) | `c`")
    '&#60;img src&#61;x&#62; &#91;a&#93;&#40;b&#41; &#124; &#96;c&#96;'
    """
    text = format_cell(value)
    plain = "".join(c if c in _PLAIN else f"&#{ord(c)};" for c in text)
    plain = plain.replace("www.", "www&#46;")
    # At the start of a line these would begin a list, a heading or a rule.
    return f"&#{ord(plain[0])};{plain[1:]}" if plain[:1] in ("-", " ") else plain
