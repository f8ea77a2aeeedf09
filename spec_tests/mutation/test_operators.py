"""Each operator makes the edit that it says, and no other."""

from __future__ import annotations

import ast
from textwrap import dedent, indent

import pytest

from spec_tests.mutation.operators import instrumented, mutants, mutated

LOCKED = """
with self._lock():
    self._files.write(content)
    self._files.fsync()
"""


def module(body: str, header: str = "def put(self, name, content):") -> str:
    return f"{header}\n{indent(dedent(body).strip(), '    ')}\n"


def made(text: str, operator: str) -> list[str]:
    """What the operator makes of the body of a function."""
    found = [ast.unparse(mutated(text, each.number)) for each in mutants("m.py", text) if each.operator == operator]
    return [dedent(each.partition("\n")[2]) for each in found]


def spelled(*bodies: str) -> list[str]:
    return [ast.unparse(ast.parse(dedent(body))) for body in bodies]


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        ("delete-effect", "files.fsync(name)", ["pass"]),
        ("delete-effect", "logger.warning('no')", []),
        ("delete-effect", "size = files.stat(name)", []),
        ("swap-effects", "files.write(name)\nfiles.fsync(name)", ["files.fsync(name)\nfiles.write(name)"]),
        ("swap-effects", "made = files.create(name)\nmade.fsync()", []),  # it is not bound yet
        ("swap-effects", "files.fsync(name)\nreturn files.link(name)", []),  # the first would not be reached
        ("drop-lock", LOCKED, ["self._files.write(content)\nself._files.fsync()"]),
        ("drop-lock", "with lock(), ledger.write() as w:\n    w.halt(1)", ["with ledger.write() as w:\n    w.halt(1)"]),
        ("drop-lock", "with files.create(name) as file:\n    file.write(content)", []),
        ("leave-early", LOCKED, ["with self._lock():\n    self._files.write(content)\nself._files.fsync()"]),
        ("enter-late", LOCKED, ["self._files.write(content)\nwith self._lock():\n    self._files.fsync()"]),
        ("leave-early", "with self._lock():\n    self._files.fsync()", []),  # the same as without the lock
        (
            "split-transaction",
            "with ledger.write() as w:\n    w.set_state(1)\n    w.forget_promise(2)",
            [
                "with ledger.write() as w:\n    w.set_state(1)\n    w._db.execute('COMMIT')\n"
                "    w._db.execute('BEGIN IMMEDIATE')\n    w.forget_promise(2)"
            ],
        ),
        (
            "split-transaction",
            "with ledger.read() as v:\n    a = v.table(1)\n    b = v.promise(1)",
            [
                "with ledger.read() as v:\n    a = v.table(1)\n    v._db.execute('COMMIT')\n"
                "    v._db.execute('BEGIN')\n    b = v.promise(1)"
            ],
        ),
        (
            "split-transaction",
            "with ledger.write() as w:\n    a = w.table(1)\n    w.halt(a)",
            [],
        ),  # reads under the lock
        ("weaken-sql", "db.execute('PRAGMA synchronous=FULL')", ["db.execute('PRAGMA synchronous=NORMAL')"]),
        ("shift-comparison", "return version <= latest", ["return version < latest"]),
        ("shift-comparison", "return version == latest", ["return version != latest"]),
        ("shift-comparison", "return name == content", []),
        (
            "shift-comparison",
            "return table.state is TableState.ACTIVE",
            ["return table.state is not TableState.ACTIVE"],
        ),
        ("shift-comparison", "return 0 < version <= 9", ["return 0 <= version <= 9", "return 0 < version < 9"]),
        ("drop-step", "return latest + 1", ["return latest"]),
        ("drop-step", "return latest + 2", []),
        ("drop-guard", "if name:\n    raise ValueError\nreturn 1", ["pass\nreturn 1"]),
        ("drop-guard", "if name:\n    return 2\nelse:\n    return 3", []),
        ("drop-raise", "try:\n    f()\nexcept OSError:\n    raise", ["try:\n    f()\nexcept OSError:\n    pass"]),
        ("drop-rule", "return a(name) or b(name)", ["return b(name)", "return a(name)"]),
        ("drop-rule", "return a(name) and b(name)", []),
        ("skip-last", "for x in name:\n    check(x)", ["for x in list(name)[:-1]:\n    check(x)"]),
        ("reverse-loop", "for x in name:\n    log.delete(x)", ["for x in reversed(list(name)):\n    log.delete(x)"]),
        ("reverse-loop", "for x in name:\n    check(x)", []),
        (
            "leave-loop",
            "for x in name:\n    check(x)\n    log.make_durable(x)",
            ["for x in name:\n    check(x)\nlog.make_durable(x)"],
        ),
        ("swap-any-all", "return any(name)", ["return all(name)"]),
        ("swap-first-last", "return name[-1]", ["return name[0]"]),
        ("swap-first-last", "name[0] = 1", []),
        ("forget", "self._read.append(name)", ["pass"]),
        ("forget", "found.append(name)", []),
        ("begin-anew", "return edited(self._metadata or name)", ["return edited(name or name)"]),
        ("begin-anew", "return edited(name or content)", []),
        ("swallow-error", "files.fsync(name)", ["try:\n    files.fsync(name)\nexcept OSError:\n    pass"]),
        ("catch-more", "with suppress(OSError):\n    f()", ["with suppress(Exception):\n    f()"]),
        ("catch-more", "try:\n    f()\nexcept OSError:\n    return", ["try:\n    f()\nexcept Exception:\n    return"]),
        ("catch-more", "try:\n    f()\nexcept OSError:\n    raise", []),
        ("compare-size", "return digest == content", ["return len(digest) == len(content)"]),
        ("compare-size", "return name == content", []),
    ],
)
def test_an_operator_makes_the_edit_that_it_says(operator: str, before: str, after: list[str]) -> None:
    assert made(module(before), operator) == spelled(*after)


def test_what_a_writer_does_is_split_where_the_transaction_was_begun_by_others() -> None:
    text = module("writer.ratify(1)\nwriter.forget_promise(2)", "def record(writer: Writer, table: Table):")
    assert made(text, "split-transaction") == spelled(
        "writer.ratify(1)\nwriter._db.execute('COMMIT')\n"
        "writer._db.execute('BEGIN IMMEDIATE')\nwriter.forget_promise(2)"
    )


def test_a_mutant_is_known_by_its_text_whatever_else_changes() -> None:
    body = "files.fsync(a)\nfiles.fsync(b)\nfiles.fsync(a)"
    text = "class Log:\n" + indent(module(body), "    ")
    moved = "import os\n\n\ndef other():\n    os.fsync(1)\n\n\n" + text
    keys = [each.key for each in mutants("m.py", text) if each.operator == "delete-effect"]
    assert keys == [
        ("m.py", "Log.put", "delete-effect", "files.fsync(a)", 1),
        ("m.py", "Log.put", "delete-effect", "files.fsync(b)", 1),
        ("m.py", "Log.put", "delete-effect", "files.fsync(a)", 2),
    ]
    assert keys == [e.key for e in mutants("m.py", moved) if e.operator == "delete-effect" and e.function == "Log.put"]


def test_the_module_itself_and_its_tree_are_never_changed() -> None:
    text = module(LOCKED)
    before = [each.key for each in mutants("m.py", text)]
    for each in mutants("m.py", text):
        assert ast.unparse(mutated(text, each.number)) != ast.unparse(ast.parse(text))
    assert [each.key for each in mutants("m.py", text)] == before
    with pytest.raises(ValueError, match="no edit 99"):
        mutated(text, 99)


def test_instrumented_code_tells_every_statement_that_a_mutant_changes() -> None:
    text = module("if name:\n    files.fsync(1)\nelse:\n    files.fsync(2)\nreturn 3")
    seen: list[int] = []
    names = {"hit": seen.append}
    exec(compile(instrumented(text, "hit", 100), "m.py", "exec"), names)  # noqa: S102  # made right here
    points = {each.source: 100 + each.point for each in mutants("m.py", text)}
    files = type("Files", (), {"fsync": lambda self, number: None})()
    names["files"] = files
    names["put"](None, True, b"")  # type: ignore[operator]
    assert points["files.fsync(1)"] in seen
    assert points["files.fsync(2)"] not in seen
