"""The table of kernel languages: no two claim a file, and the catalog knows each one."""

from __future__ import annotations

from itertools import chain

from store.code import languages
from store.code.languages import LANGUAGES
from store.schema import catalog


def test_each_language_is_a_word_of_the_catalog() -> None:
    names = [language.name for language in LANGUAGES]
    assert len(set(names)) == len(names)
    assert set(names) <= set(catalog.load().enums["language"].values)


def test_a_file_and_a_fence_belong_to_one_language() -> None:
    suffixes = list(chain.from_iterable(language.suffixes for language in LANGUAGES))
    fences = list(chain.from_iterable(language.fences for language in LANGUAGES))
    assert len(set(suffixes)) == len(suffixes)
    assert len(set(fences)) == len(fences)
    assert all(language.fence in language.fences for language in LANGUAGES if language.suffixes)


def test_the_parser_of_a_file_follows_from_its_name() -> None:
    assert languages.is_python("kernel.py")
    assert languages.is_native("src/kernel.cu")
    assert languages.is_native("kernel.hpp")
    assert not languages.is_python("notes.txt")
    assert not languages.is_native("notes.txt")
    assert languages.find_fence("src/kernel.cu") == "cuda"
    assert languages.find_fence("notes.txt") == ""
