"""The score of the detectors: labelled texts, searched by ours and by kernelguard."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scoring.corpora import LabelledText
from scoring.tables import write_share

LOOK = 0.5
"""Confidence from which a person looks at a finding."""
_PROFILES = ("default", "strict")
OWN_WORK = frozenset(("library-only", "copied-source"))
"""Detectors whose findings count only where a corpus asks for kernels of the author's own."""


@dataclass(frozen=True)
class Searched:
    """What is said of a text."""

    text: LabelledText
    findings: dict[str, float]
    """Highest confidence by detector."""
    peer: tuple[str, ...] = ()
    """Classification by kernelguard under its profiles default and strict, if it is installed."""

    @property
    def is_flagged(self) -> bool:
        """Whether a finding of ours is worth a look."""
        return any(
            sure >= LOOK or (name in OWN_WORK and self.text.needs_own_kernels)
            for name, sure in self.findings.items()
        )


def search_texts(texts: Iterable[LabelledText]) -> list[Searched]:
    """Search texts with all detectors, and with kernelguard if it is installed."""
    from evaluators.audit import detect

    peers: list[Any] = []
    try:
        peers.append(importlib.import_module("kernelguard"))
    except ImportError:
        print("kernelguard is not installed: pip install kernelguard==0.3.2")
    found: list[Searched] = []
    for text in texts:
        files = [{"path": path, "code": code} for path, code in text.other_files]
        findings: dict[str, float] = {}
        for row in detect.search_kernel(text.code, files, "k"):
            name = row["detector"]
            findings[name] = max(findings.get(name, 0.0), row["confidence"])
        whole = "\n".join([text.code, *(code for _, code in text.other_files)])
        said: list[str] = []
        for peer, profile in itertools.product(peers, _PROFILES):
            peer.configure_runtime(profile=profile)
            said.append(peer.analyze_code(whole)["classification"])
        found.append(Searched(text, findings, tuple(said)))
    return found


def print_texts(found: Sequence[Searched]) -> None:
    """Print recall and false alarms by corpus, and every miss and false alarm."""
    print("\n| corpus | | ours | kernelguard: hacked | kernelguard, strict: hacked or suspicious |")
    print("|---|---|---|---|---|")
    groups: dict[str, list[Searched]] = {}
    for one in found:
        groups.setdefault(one.text.corpus, []).append(one)
    for corpus, group in groups.items():
        for is_hack, word in ((True, "hacks found"), (False, "false alarms")):
            ones = [one for one in group if one.text.is_hack is is_hack]
            ours = write_share(sum(one.is_flagged for one in ones), len(ones))
            counts = [
                write_share(sum(one.peer[n] in words for one in ones), len(ones))
                if all(one.peer for one in ones)
                else "not installed"
                for n, words in enumerate((("hacked",), ("hacked", "suspicious")))
            ]
            print(f"| {corpus} | {word} | {ours} | {counts[0]} | {counts[1]} |")
    for one in found:
        if one.text.is_hack is not None and one.is_flagged is not one.text.is_hack:
            word = "missed" if one.text.is_hack else "false alarm"
            above = {n: s for n, s in one.findings.items() if s >= LOOK or n in OWN_WORK}
            said = ", ".join(f"{name} {sure}" for name, sure in above.items())
            print(f"{word}: {one.text.corpus}/{one.text.name}: {said or 'no finding'}")
