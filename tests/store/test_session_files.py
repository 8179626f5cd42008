"""The files that an agent writes are followed from its tool calls, exactly or not at all."""

from __future__ import annotations

from typing import Any

import pytest

from store.importers.reading.session_files import SessionFiles

PATCH = """*** Begin Patch
*** Add File: b.py
+x = 1
+y = 2
*** Update File: a.py
@@ def f():
-    return 1
+    return 2
*** End Patch"""
REPLACE = """python3 - <<'PY'
from pathlib import Path
p = Path('a.py')
s = p.read_text()
s = s.replace('one', 'two')
p.write_text(s)
PY"""
OPENED = """python - <<'PY'
with open('a.py') as f: s = f.read()
open('a.py', 'w').write(s.replace('one', 'two', 1))
PY"""
KERNEL = "class ModelNew:\n    pass\n"


def shell(text: str) -> tuple[str, Any]:
    return ("Bash", {"command": text})


@pytest.mark.parametrize(
    ("before", "call", "after"),
    [
        (None, shell("cd /w && cat > a.py <<'EOF'\n$x\nEOF\npython a.py"), "$x\n"),
        (None, shell("cat << EOF > a.py\nx\nEOF"), "x\n"),
        (None, shell("cat > a.py <<EOF\n$x\nEOF"), None),
        (None, shell("cat > a.py <<'EOF'\nnever closed"), None),
        (None, ("bash_command", {"keystrokes": "tee a.py <<-'E'\n\tx\n\tE\n"}), "x\n"),
        (None, shell("cat <<'E' | tee a.py >/dev/null 2>&1\nx\nE"), "x\n"),
        ("one\n", shell("cat >> a.py <<'EOF'\ntwo\nEOF"), "one\ntwo\n"),
        ("a.b\nacb\n", shell(r"sed -i 's/a\.b/x/' a.py"), "x\nacb\n"),
        ("a.b\nacb\n", shell("sed -i 's/a.b/x/' a.py"), None),
        ("one\ntwo\none\n", shell("sed -i '3s|one|1|; ' a.py"), None),
        ("one\ntwo\none\n", shell("sed -i -e '3s|one|1|' -e 2d a.py"), "one\n1\n"),
        ("one", shell("echo 'a > b' && cp a.py b.py && mv b.py a.py"), "one"),
        ("one", shell('python -c "\nprint(1 > 2)\n" && git checkout a.py'), None),
        ("one one", shell(REPLACE), "two two"),
        ("one one", shell(OPENED), "two one"),
        ("one", shell(REPLACE.replace("'one'", "chr(1)")), None),
        ("def f():\n    return 1\n", ("apply_patch", {"input": PATCH}), "def f():\n    return 2\n"),
        (
            "def f():\n    return 1\n",
            ("shell", {"command": ["bash", "-lc", f"apply_patch <<'E'\n{PATCH}\nE"]}),
            "def f():\n    return 2\n",
        ),
        ("def g(): ...\n", ("shell", {"command": ["apply_patch", PATCH]}), None),
        ("one", ("edit", {"filePath": "a.py", "oldString": "one", "newString": "two"}), "two"),
        ("one one", ("Edit", {"file_path": "a.py", "old_string": "one", "new_string": "2"}), None),
        (
            "one one",
            ("replace", {"file_path": "a.py", "old_string": "one", "new_string": "2"}
            | {"expected_replacements": 2}),
            "2 2",
        ),
        (
            "one\n",
            ("replace_in_file", {"path": "a.py"}
            | {"diff": "<<<<<<< SEARCH\none\n=======\ntwo\n>>>>>>> REPLACE"}),
            "two\n",
        ),
        (
            "one\n",
            ("str_replace_editor", {"command": "insert", "path": "a.py", "insert_line": 1}
            | {"new_str": "two"}),
            "one\ntwo\n",
        ),
        ("one", ("undo_edit", {"path": "a.py"}), None),
        ("one", ("Read", {"file_path": "a.py"}), "one"),
        (None, ("", {"path": "a.py", "content": KERNEL}), KERNEL),
        ("one", ("mcp__fs__put_object", {"filename": "/w/a.py", "body": KERNEL}), KERNEL),
        ("one", ("check", {"path": "a.py", "content": "a part of ModelNew"}), "one"),
        ("one", ("swap", {"path": "a.py", "old_string": "x", "content": KERNEL}), "one"),
    ],
)  # fmt: skip
def test_a_call_changes_a_file_exactly_or_makes_it_unknown(
    before: str | None, call: tuple[str, Any], after: str | None
) -> None:
    files = SessionFiles()
    if before is not None:
        assert files.follow("write_file", {"path": "/w/a.py", "content": before}) == ["/w/a.py"]
    files.follow(*call)
    found = {path.removeprefix("/w/"): text for path, text in files.texts.items()}
    assert found.get("a.py") == after


def test_hostile_commands_end_quickly() -> None:
    files = SessionFiles()
    files.follow("write_file", {"path": "a.py", "content": "x" * 1_000_000})
    for text in ("'" * 99_999, "<<A " * 20_000, '"' + "\\" * 200_001, "$(" * 99_999, "a=" * 99_999):
        files.follow("Bash", {"command": f"cat > a.py {text}\n" + "x\n" * 10})
    files.follow("Bash", {"command": "sed -i 's/" + "x" * 99_999 + "y/z/g' a.py"})
