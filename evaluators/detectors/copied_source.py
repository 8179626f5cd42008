"""Has a copyright notice, as text that was copied from a library has."""

import re
from collections.abc import Iterator

from evaluators.audit.source import Hit, Source, quote_line

VERSION = 1
_NOTICE = re.compile(r"copyright\s+(\(c\)|©|\d{4})", re.IGNORECASE)


def find(source: Source) -> Iterator[Hit]:
    """Yield notices. They are no cheats where copies are allowed, but name whose text it is."""
    for module in source.modules:
        for number, line in enumerate(module.lines, start=1):
            if _NOTICE.search(line):
                yield Hit(module.path, number, quote_line(module.lines, number), 0.3)
