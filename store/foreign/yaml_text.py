"""Untrusted YAML: plain values of one document, with limits on size, aliases and depth."""

from __future__ import annotations

from typing import Any, cast

import yaml

from store.errors import ImportFailed
from store.foreign.fields import NOTHING_STORED

MAX_CHARACTERS = 4 << 20


def parse(text: str, where: str) -> dict[str, Any]:
    """Return the mapping of a YAML text.

    Raises ImportFailed if the text is no YAML or no mapping, has an alias or a tag of its own, is
    nested too deeply, or is longer than MAX_CHARACTERS; `where` is in the message.
    """
    if len(text) > MAX_CHARACTERS:
        raise ImportFailed(
            f"{where} has more than {MAX_CHARACTERS} characters of YAML", NOTHING_STORED
        )
    try:
        value = yaml.load(text, Loader=_Loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ImportFailed(f"{where} is not YAML: {error}", NOTHING_STORED) from error
    if not isinstance(value, dict):
        raise ImportFailed(f"{where}: a mapping is expected", NOTHING_STORED)
    return cast("dict[str, Any]", value)


class _Loader(yaml.SafeLoader):
    """Refuses aliases."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise yaml.YAMLError("aliases are not read")
        return super().compose_node(parent, index)
