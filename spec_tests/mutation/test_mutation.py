"""Each operator makes only its edit. A run finds a missing fsync, and rejects a stale explanation."""

import ast
from dataclasses import replace
from pathlib import Path
from textwrap import dedent, indent

import pytest

from spec_tests.mutation.__main__ import main
from spec_tests.mutation.conftest import repository
from spec_tests.mutation.operators import instrumented, mutants, mutated
from spec_tests.mutation.run import FILE, PACKAGES, Key, Result, Run, Verdict, load, reasons, stale

LOCKED = """
with self._lock():
    self._files.write(content)
    self._files.fsync()
"""


def module(body: str, header: str = "def put(self, name, content):") -> str:
    return f"{header}\n{indent(dedent(body).strip(), '    ')}\n"


def made(text: str, operator: str) -> list[str]:
    """The results of the operator on the body of a function."""
    results = [
        ast.unparse(mutated(text, mutant.number)) for mutant in mutants("m.py", text) if mutant.operator == operator
    ]
    return [dedent(result.partition("\n")[2]) for result in results]


def spelled(*bodies: str) -> list[str]:
    return [ast.unparse(ast.parse(dedent(body))) for body in bodies]


@pytest.mark.parametrize(
    ("operator", "before", "after"),
    [
        (
            "delete-effect",
            "super().f(name)",
            ["__class__"],
        ),  # otherwise the function would have other closure variables
        ("delete-effect", "files.fsync(name)", ["pass"]),
        ("delete-effect", "logger.warning('no')", []),
        ("delete-effect", "size = files.stat(name)", []),
        ("swap-effects", "files.write(name)\nfiles.fsync(name)", ["files.fsync(name)\nfiles.write(name)"]),
        ("swap-effects", "made = files.create(name)\nmade.fsync()", []),  # `made` would not be bound yet
        ("swap-effects", "files.fsync(name)\nreturn files.link(name)", []),  # the sync would not be reached
        ("drop-lock", LOCKED, ["self._files.write(content)\nself._files.fsync()"]),
        ("drop-lock", "with lock(), ledger.write() as w:\n    w.halt(1)", ["with ledger.write() as w:\n    w.halt(1)"]),
        ("drop-lock", "with files.create(name) as file:\n    file.write(content)", []),
        ("leave-early", LOCKED, ["with self._lock():\n    self._files.write(content)\nself._files.fsync()"]),
        ("enter-late", LOCKED, ["self._files.write(content)\nwith self._lock():\n    self._files.fsync()"]),
        ("leave-early", "with self._lock():\n    self._files.fsync()", []),  # the same as `drop-lock`
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
        ),  # a read under the lock
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
        ("skip-last", "for x in range(TRIES):\n    check(x)", []),
        ("reverse-loop", "for x in name:\n    log.delete(x)", ["for x in reversed(list(name)):\n    log.delete(x)"]),
        ("reverse-loop", "for x in name:\n    check(x)", []),
        (
            "leave-loop",
            "for x in name:\n    check(x)\n    log.overwrite(x)",
            ["for x in name:\n    check(x)\nlog.overwrite(x)"],
        ),
        ("swap-any-all", "return any(name)", ["return all(name)"]),
        ("swap-first-last", "return name[-1]", ["return name[0]"]),
        ("swap-first-last", "name[0] = 1", []),
        ("swap-first-last", "return f'invalid {name[0]}'", []),
        ("forget", "self._read.append(name)", ["pass"]),
        ("forget", "found.append(name)", []),
        ("begin-anew", "return edited(self._metadata or name)", ["return edited(name or name)"]),
        ("begin-anew", "return edited(name or content)", []),
        ("swallow-error", "files.fsync(name)", ["try:\n    files.fsync(name)\nexcept OSError:\n    pass"]),
        ("catch-more", "with suppress(OSError):\n    f()", ["with suppress(Exception):\n    f()"]),
        ("catch-more", "try:\n    f()\nexcept OSError:\n    return", ["try:\n    f()\nexcept Exception:\n    return"]),
        ("catch-more", "try:\n    f()\nexcept OSError:\n    raise", []),
        ("catch-more", "with suppress(OSError):\n    files.unlink(name)", []),  # it raises no other error
        ("swallow-error", "with suppress(OSError):\n    files.unlink(name)", []),
        ("compare-size", "return digest == content", ["return len(digest) == len(content)"]),
        ("compare-size", "return name == content", []),
    ],
)
def test_operator_makes_its_edit(operator: str, before: str, after: list[str]) -> None:
    assert made(module(before), operator) == spelled(*after)


def test_function_with_a_writer_is_split_in_its_transaction() -> None:
    text = module("writer.ratify(1)\nwriter.forget_promise(2)", "def record(writer: Writer, table: Table):")
    assert made(text, "split-transaction") == spelled(
        "writer.ratify(1)\nwriter._db.execute('COMMIT')\n"
        "writer._db.execute('BEGIN IMMEDIATE')\nwriter.forget_promise(2)"
    )


def test_mutant_key_does_not_depend_on_other_code() -> None:
    body = "files.fsync(a)\nfiles.fsync(b)\nfiles.fsync(a)"
    text = "class Log:\n" + indent(module(body), "    ")
    moved = "import os\n\n\ndef other():\n    os.fsync(1)\n\n\n" + text
    keys = [mutant.key for mutant in mutants("m.py", text) if mutant.operator == "delete-effect"]
    assert keys == [
        ("m.py", "Log.put", "delete-effect", "files.fsync(a)", 1),
        ("m.py", "Log.put", "delete-effect", "files.fsync(b)", 1),
        ("m.py", "Log.put", "delete-effect", "files.fsync(a)", 2),
    ]
    assert keys == [e.key for e in mutants("m.py", moved) if e.operator == "delete-effect" and e.function == "Log.put"]


def test_mutation_does_not_change_the_module() -> None:
    text = module(LOCKED)
    before = [mutant.key for mutant in mutants("m.py", text)]
    for mutant in mutants("m.py", text):
        assert ast.unparse(mutated(text, mutant.number)) != ast.unparse(ast.parse(text))
    assert [mutant.key for mutant in mutants("m.py", text)] == before
    with pytest.raises(ValueError, match="no edit 99"):
        mutated(text, 99)


def test_instrumented_code_reports_every_changed_statement() -> None:
    text = module("if name:\n    files.fsync(1)\nelse:\n    files.fsync(2)\nreturn 3")
    seen: list[int] = []
    names = {"hit": seen.append}
    exec(compile(instrumented(text, "hit", 100), "m.py", "exec"), names)  # noqa: S102  # made right here
    points = {mutant.source: 100 + mutant.point for mutant in mutants("m.py", text)}
    files = type("Files", (), {"fsync": lambda self, number: None})()
    names["files"] = files
    names["put"](None, True, b"")  # type: ignore[operator]
    assert points["files.fsync(1)"] in seen
    assert points["files.fsync(2)"] not in seen


# A run

SOURCE = """
def put(files, content):
    files.write(content)
    files.fsync()
    files.close()


def wait(files):
    while files.busy():
        files.pause()
"""
TESTS = """
from refimpl.log_store import put, wait


class Files:
    def __init__(self):
        self.seen = []

    def busy(self):
        return "pause" not in self.seen

    def __getattr__(self, name):
        return lambda *_: self.seen.append(name)


def test_it_is_durable():
    files = Files()
    put(files, b"bytes")
    assert files.seen[:2] == ["write", "fsync"]
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A repository with one module and its test."""
    return repository(tmp_path / "copy", SOURCE, "spec_tests/owner/test_put.py", TESTS)


def run(copy: Path, explained: dict[Key, str]) -> Result:
    """Run all mutants, and one that cannot be made."""
    mutation_run = Run(copy, [""], at_once=2, seconds=10.0)
    chosen = [mutant for mutant in mutation_run.mutants if mutant.operator in ("delete-effect", "swap-effects")]
    chosen.insert(0, replace(chosen[0], number=99))
    return mutation_run.go(chosen, explained)


def test_removed_fsync_is_killed_and_an_unseen_edit_survives(copy: Path) -> None:
    entry = ("refimpl/log_store.py", "put", "delete-effect", "files.close()", 1)
    judged = run(copy, {entry: "the file is closed by its caller"})
    (unjudged,) = judged.unjudged
    assert "put: delete-effect of `files.write(content)`" in unjudged
    assert "no edit 99" in unjudged
    fates = {(verdict.mutant.operator, verdict.mutant.source): verdict for verdict in judged.verdicts}
    missing = fates["delete-effect", "files.fsync()"]
    assert missing.killer == "spec_tests/owner/test_put.py::test_it_is_durable"
    assert "assert ['write', 'close'] == ['write', 'fsync']" in missing.detail
    assert fates["swap-effects", "files.write(content) ; files.fsync()"].killer == missing.killer
    survivor = fates["delete-effect", "files.close()"]
    assert (survivor.killer, survivor.checks) == (None, 1)
    assert survivor.reason == "the file is closed by its caller"
    unseen = fates["delete-effect", "files.pause()"]
    assert (unseen.killer, unseen.checks, unseen.reason) == (None, 0, None)
    assert (copy / "refimpl/log_store.py").read_text(encoding="utf-8") == SOURCE


def test_failing_source_is_not_judged(copy: Path) -> None:
    (copy / "refimpl/log_store.py").write_text(SOURCE.replace("    files.fsync()\n", ""), encoding="utf-8")
    judged = run(copy, {})
    assert judged.verdicts == []
    assert len(judged.broken) == 1
    assert "test_it_is_durable" in judged.broken[0]


def test_report_keeps_all_verdicts_beside_an_unjudged_mutant(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    survivor = next(mutant for mutant in mutants("refimpl/log_store.py", SOURCE) if mutant.source == "files.close()")
    verdict = Verdict(mutant=survivor, killer=None, detail="", checks=1, seconds=0.1)
    result = Result(verdicts=[verdict], broken=[], unjudged=["refimpl/log_store.py:3: cannot be made"])
    (tmp_path / "equivalent.toml").touch()
    monkeypatch.setattr("spec_tests.mutation.run.FILE", tmp_path / "equivalent.toml")
    monkeypatch.setattr("spec_tests.mutation.checking.copied", lambda target: copy)
    monkeypatch.setattr(Run, "go", lambda *_: result)
    assert main([]) == 3
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("1 mutants in")
    assert printed[1].startswith("SURVIVES refimpl/log_store.py:5 put")
    assert printed[2:] == ["NOT JUDGED refimpl/log_store.py:3: cannot be made"]


ENTRY = """
[[mutant]]
file = "refimpl/log_store.py"
function = "put"
operator = "delete-effect"
source = "files.close()"
reason = "the file is closed by its caller"
"""


def test_an_explanation_needs_an_existing_survivor() -> None:
    entries = load(ENTRY)
    known = mutants("refimpl/log_store.py", SOURCE)
    assert stale(entries, known, {}) == []
    killed = stale(entries, known, {entries[0].key: "test_it_is_durable"})
    assert len(killed) == 1
    assert "test_it_is_durable kills it" in killed[0]
    gone = mutants("refimpl/log_store.py", SOURCE.replace("    files.close()\n", ""))
    assert ["there is no such mutant" in sentence for sentence in stale(entries, gone, {})] == [True]
    assert stale(entries, mutants("refimpl/files.py", SOURCE), {}) == []


CLASS = (
    ENTRY.replace('"put"', '"*"')
    .replace("log_store.py", "*.py")
    .replace("files.close()", r"^files\\.(close|pause)\\(\\)$")
)


def test_one_entry_explains_a_class_of_mutants() -> None:
    entries = load(CLASS)
    known = mutants("refimpl/log_store.py", SOURCE)
    explained = reasons(entries, known)
    assert sorted((key[1], key[3]) for key in explained) == [("put", "files.close()"), ("wait", "files.pause()")]
    closing, pausing = explained
    assert stale(entries, known, {closing: "test_it_is_durable"}) == []
    assert len(stale(entries, known, {closing: "test_it_is_durable", pausing: "test_it_ends"})) == 1
    without = [mutant for mutant in known if mutant.key not in explained]
    assert stale(entries, without, {}, targets=[entries[0].file])
    assert stale(entries, without, {}) == [], "another package makes only some edits in these files"


def test_an_entry_is_not_stale_because_its_files_were_not_chosen(
    copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / "refimpl/files.py").write_text("def put(files):\n    files.fsync()\n", encoding="utf-8")
    (tmp_path / "equivalent.toml").write_text(CLASS.replace("refimpl/*.py", PACKAGES["files"].targets[0]))
    monkeypatch.setattr("spec_tests.mutation.run.FILE", tmp_path / "equivalent.toml")
    monkeypatch.setattr("spec_tests.mutation.checking.copied", lambda target: copy)
    monkeypatch.setattr(Run, "go", lambda *_: Result(verdicts=[], broken=[], unjudged=[]))
    operator = ["--operator", "delete-effect"]
    assert main(["--package", "files", "--files", "files.py", *operator]) == 0
    (copy / "refimpl/log_store.py").unlink()
    assert main(["--package", "files", *operator]) == 1, "no file has such a mutant"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (ENTRY + ENTRY, "twice"),
        (ENTRY.replace("the file is closed by its caller", "equivalent"), "no reason"),
        (ENTRY.replace('operator = "delete-effect"\n', ""), "operator"),
        (ENTRY + 'line = "3"\n', "line"),
    ],
)
def test_incomplete_explanation_is_rejected(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(text)


def test_every_explanation_has_an_existing_mutant() -> None:
    root = Path(__file__).parents[2]
    files = [str(path.relative_to(root)) for path in sorted((root / "refimpl").rglob("*.py"))]
    known = [mutant for file in files for mutant in mutants(file, (root / file).read_text(encoding="utf-8"))]
    assert stale(load(FILE.read_text(encoding="utf-8")), known, {}) == []


def test_invalid_call_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--slice", "0"], ["--jobs", "0"], ["--unknown"]):
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 2
    assert "--jobs and --slice must be 1 or more" in capsys.readouterr().err
