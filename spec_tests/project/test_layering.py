"""The allowed imports between modules, and the modules that may access a log. All rules are checked on the source.

Imports inside functions count. Imports for type checkers count only for the order of the layers.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("sources")
"""All tests here run in one process, which parses all modules."""

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("refimpl", "conformance")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


@cache
def text_of(module: str) -> str:
    return MODULES[module].read_text(encoding="utf-8")


@cache
def tree_of(module: str) -> ast.Module:
    return ast.parse(text_of(module))


def walk(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, except those under `if TYPE_CHECKING:`."""
    pending = [node]
    while pending:
        for child in ast.iter_child_nodes(pending.pop()):
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                continue
            yield child
            pending.append(child)


@cache
def statements(module: str, *, for_types: bool) -> list[ast.stmt]:
    """All statements at any depth, without their expressions. `for_types`: also those under `if TYPE_CHECKING:`."""
    found: list[ast.stmt] = []
    waiting: list[ast.AST] = [*tree_of(module).body]
    while waiting:
        statement = waiting.pop()
        condition = statement.test if isinstance(statement, ast.If) else None
        if isinstance(condition, ast.Name) and condition.id == "TYPE_CHECKING" and not for_types:
            continue
        if isinstance(statement, ast.stmt):
            found.append(statement)
        for block in ("body", "orelse", "finalbody", "handlers", "cases"):
            waiting += getattr(statement, block, ())
    return found


@cache
def imports_of(module: str, *, for_types: bool = False) -> frozenset[str]:
    """The full names of all packages, modules and names that a module imports. `for_types`: also the imports for type
    checkers."""
    imports: set[str] = set()
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in statements(module, for_types=for_types):
        if isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parents, base] if base else parents)
            imports |= {base} | {f"{base}.{alias.name}" for alias in node.names}
    return frozenset(imports)


def below(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def modules_in(*packages: str) -> list[str]:
    return [module for module in MODULES if below(module, *packages)]


def violations(modules: list[str], *forbidden: str) -> list[str]:
    return [f"{m} imports {name}" for m in modules for name in sorted(imports_of(m)) if below(name, *forbidden)]


# The layers of both trees


REFERENCE_LAYERS = (
    ("cli",),
    ("demo",),
    ("spark", "server"),
    ("warehouse",),
    ("groups",),
    ("announced", "care", "client", "served"),
    ("rows", "log", "owner", "remote_owner"),
    ("schema", "storage", "catalog"),
    ("protocol",),
)
KIT_LAYERS = (
    ("command",),
    ("findings", "teaching"),
    ("reports",),
    ("story",),
    ("running", "simulation"),
    ("checks", "subjects"),
    ("programs",),
    ("scenario",),
    ("mutants",),
    ("adapters",),
    ("history_checkers",),
    ("oracle",),
    ("models",),
    ("history",),
    ("interface",),
    ("requirements",),
)
"""The layers, from top to bottom. A unit is a package, or a module beside the packages. A module may import its own
unit and units of lower lines, but no other unit of its line."""

ONLY_FROM = {
    "simulation": ("command", "teaching"),
    "command": (), "cli": (), "examples": (),
}  # fmt: skip
"""The only modules that may import these."""


def rank_of(module: str) -> tuple[str, int]:
    """The unit of a module, and the number of the unit's line."""
    top, _, inside = module.partition(".")
    layers = REFERENCE_LAYERS if top == "refimpl" else KIT_LAYERS
    units = {unit: number for number, line in enumerate(layers) for unit in line if below(inside, unit)}
    assert units, f"{module} is in no line of the table of layers"
    (rank,) = units.items()
    return rank


ROOTS = ("refimpl", "conformance")
STARTERS = ("conformance.__main__",)
"""Modules that start the command line, and therefore import it."""


def edges() -> Iterator[tuple[str, str]]:
    """Pairs of modules of one tree: the first imports the second. Without the root packages and `STARTERS`."""
    for module in MODULES:
        for name in sorted(imports_of(module, for_types=True)):
            ours = name in MODULES and name != module and name.partition(".")[0] == module.partition(".")[0]
            if ours and not {name, module} & {*ROOTS, *STARTERS}:
                yield module, name


def upward() -> set[tuple[str, str]]:
    pairs = set()
    for module, name in edges():
        (unit, line), (other, lower) = rank_of(module), rank_of(name)
        uninvited = other in ONLY_FROM and unit not in ONLY_FROM[other]
        if unit != other and (lower <= line or uninvited):
            pairs.add((module.partition(".")[2], other))
    return pairs


def test_no_package_imports_a_higher_package() -> None:
    assert upward() == set()


def circles(imports: Iterable[tuple[str, str]]) -> set[str]:
    """What imports itself through others."""
    below_it: dict[str, set[str]] = {}
    for module, name in imports:
        # A package is imported before its modules; this import is not in the source.
        if not below(module, name):
            below_it.setdefault(module, set()).add(name)
    modules = set()
    for module in below_it:
        seen, waiting = set[str](), [module]
        while waiting:
            for name in below_it.get(waiting.pop(), ()):
                if name not in seen:
                    seen.add(name)
                    waiting.append(name)
        if module in seen:
            modules.add(module)
    return modules


def test_no_module_imports_itself_through_others() -> None:
    assert circles(edges()) == set()


def test_no_folder_imports_itself_through_others() -> None:
    """A module beside the folders counts as one."""
    assert circles((module.rpartition(".")[0], name.rpartition(".")[0]) for module, name in edges()) == set()


def test_folders_of_the_reference_import_few_others() -> None:
    arrows = {(module.split(".")[1], name.split(".")[1]) for module, name in edges() if below(module, "refimpl")}
    assert len([arrow for arrow in arrows if len(set(arrow)) == 2]) <= 68


def private_uses() -> set[tuple[str, str]]:
    uses = set()
    for module in MODULES:
        modules: set[str] = set()
        for node in statements(module, for_types=False):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
                names = {alias.name for alias in node.names}
                modules |= {alias.asname or alias.name for alias in node.names}
                uses |= {(module, name) for name in names if name.startswith("_") and not name.startswith("__")}
        if not re.search(rf"\b({'|'.join(modules)})\s*\.\s*_", text_of(module)):
            continue
        for node in walk(tree_of(module)):
            if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
                continue
            if node.value.id in modules and node.attr.startswith("_") and not node.attr.startswith("__"):
                uses.add((module, f"{node.value.id}.{node.attr}"))
    return uses


def test_no_private_name_of_another_module_is_used() -> None:
    """In tests, only the import of a private name counts."""
    assert private_uses() == set()
    private = re.compile(r"^ *from \S+ import (?:[^(\n]*|\([^)]*)\b_[a-z]\w*", re.MULTILINE | re.IGNORECASE)
    tests = (path.read_text(encoding="utf-8") for path in (ROOT / "spec_tests").rglob("*.py"))
    assert [line for text in tests for line in private.findall(text)] == []


def test_kit_page_shows_the_layers() -> None:
    page = (ROOT / "conformance" / "README.md").read_text(encoding="utf-8")
    drawn = page.partition("## Packages")[2].partition("```text\n")[2].partition("```")[0]
    lines = [tuple(line.partition(":")[0].split()) for line in drawn.splitlines()]
    assert lines == list(KIT_LAYERS)


def test_client_imports_no_ledger_lock_spark_or_owner() -> None:
    forbidden = ("apsw", "sqlite3", "filelock", "pyspark", "refimpl.owner")
    assert violations(OF_CLIENTS, *forbidden) == []


def test_only_the_ledger_and_its_simulation_import_sqlite() -> None:
    """The simulated disk is the layer below SQLite, and no second ledger."""
    importing = [module for module in MODULES if any(below(name, "apsw", "sqlite3") for name in imports_of(module))]
    assert importing == ["refimpl.care.watched_ledger", "refimpl.owner.ledger", "conformance.simulation.sqlite_vfs"]


def test_only_the_environment_imports_the_file_lock() -> None:
    importing = [module for module in MODULES if any(below(name, "filelock") for name in imports_of(module))]
    assert importing == ["refimpl.storage.environment"]


LEDGER = ["refimpl.owner.ledger", "refimpl.owner.statements", "refimpl.care.watched_ledger"]


def test_the_ledger_touches_no_table() -> None:
    assert violations(LEDGER, "refimpl.storage.log_store") == []


def test_spark_is_imported_where_spark_is_used() -> None:
    """Sail is a server for PySpark's client."""
    allowed = ("refimpl.spark", "refimpl.demo", "conformance.adapters.engines.sail")
    importing = [m for m in MODULES if any(below(n, "pyspark") for n in imports_of(m)) and not below(m, *allowed)]
    assert importing == []


def test_modules_of_tasks_never_import_the_owner() -> None:
    """The driver owns the transaction."""
    imports = violations(modules_in("refimpl.spark"), "refimpl.owner")
    assert imports == []


KNOW_THE_REFERENCE = ("conformance.adapters.reference", "conformance.simulation.reference", "conformance.teaching.play")
"""These modules run the reference's code. The rest of the kit, which checks owners, does not."""


def test_kit_imports_the_reference_only_to_run_it() -> None:
    assert violations(modules_in("refimpl"), "conformance", "spec_tests") == []
    kit = [m for m in modules_in("conformance") if not below(m, *KNOW_THE_REFERENCE)]
    assert violations(kit, "refimpl", "spec_tests") == []


PURE = ["refimpl.log.log_segment", "refimpl.client.conflicts", "refimpl.owner.decide", *(
    f"refimpl.protocol.{name}" for name in ("errors", "log_path", "actions", "commits", "table_feature")
)]  # fmt: skip
EFFECTS = ("os", "io", "time", "datetime", "random", "secrets", "uuid", "subprocess", "socket", "tempfile", "shutil")


@pytest.mark.parametrize("module", PURE)
def test_pure_modules_have_no_effects(module: str) -> None:
    """No I/O, clock or randomness, neither by imports nor by calls that need no import."""
    assert violations([module], *EFFECTS, "refimpl.storage") == []
    called = {
        node.func.id for node in walk(tree_of(module)) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert called.isdisjoint({"open", "print", "input"})


# Access to files

PATH_METHODS = {
    "chmod", "cwd", "exists", "glob", "group", "hardlink_to", "home", "is_dir", "is_file", "is_mount", "is_symlink",
    "iterdir", "lstat", "mkdir", "open", "owner", "read_bytes", "read_text", "readlink", "rename", "resolve", "rglob",
    "rmdir", "samefile", "stat", "symlink_to", "touch", "unlink", "write_bytes", "write_text",
}  # fmt: skip
"""Methods of `pathlib.Path`, without `replace` and `absolute`, which are also names of harmless methods."""

EFFECT_OBJECTS = {"files", "_files", "log", "_log", "reader", "ledger", "segment", "Table", "catalog", "owner"}
"""Names of the objects through which modules access files: `files.stat(...)` is not `Path.stat`."""

ALLOWED = {
    ("refimpl.owner.local", "resolve"): "finds a table by every path that leads to it",
    ("refimpl.warehouse", "read_text"): "/proc/self/mounts",
    ("refimpl.owner.ledger", "getpid"): "finds out which process opened the connection",
    ("refimpl.served.group", "getpid"): "finds out which process has the waiting threads",
    ("refimpl.warehouse", "resolve"): "resolves the paths of the warehouse and its roots",
    ("refimpl.warehouse", "is_dir"): "checks that a root is a directory",
    ("refimpl.warehouse.owner_names", "resolve"): "finds the warehouse around a table",
    ("refimpl.warehouse.owner_names", "is_dir"): "finds the warehouse around a table",
}
"""The documented exceptions, with their reasons."""

DATA_FILES = {"refimpl.rows.data_files", "refimpl.rows.deletion_vectors", "refimpl.rows.input_files"}
"""These modules read and write data files and deletion vectors, which engines write themselves, or read a user's files,
and no log."""


@cache
def file_effects(module: str) -> list[tuple[str, int]]:
    effects = []
    for node in walk(tree_of(module)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        if isinstance(function, ast.Name) and function.id == "open":
            effects.append(("open", node.lineno))
        elif isinstance(function, ast.Attribute):
            receiver = function.value
            name = receiver.id if isinstance(receiver, ast.Name) else getattr(receiver, "attr", "")
            ours = name in EFFECT_OBJECTS or name == "self"
            if name in ("os", "shutil", "io", "tempfile") or (function.attr in PATH_METHODS and not ours):
                effects.append((function.attr, node.lineno))
    return effects


OF_CLIENTS = modules_in("refimpl.client", "refimpl.log", "refimpl.rows", "refimpl.schema")
OF_THE_LOG = [
    *(m for m in OF_CLIENTS if m not in DATA_FILES),
    *modules_in(
        "refimpl.storage.log_store", "refimpl.owner", "refimpl.catalog", "refimpl.protocol", "refimpl.warehouse"
    ),
]


def test_every_byte_of_a_log_goes_through_files() -> None:
    """No other module may call `open`, `os.*` or `pathlib` I/O on a log."""
    effects = [(module, what, line) for module in OF_THE_LOG for what, line in file_effects(module)]
    assert [f"{module}:{line} {what}" for module, what, line in effects if (module, what) not in ALLOWED] == []


def test_every_documented_exception_is_used() -> None:
    for module, what in ALLOWED:
        assert what in {used for used, _ in file_effects(module)}, f"{module} does not use {what} any more"


# Cost and size


HEAVY = ("pyarrow", "pyspark", "pandas", "numpy", "apsw", "sqlite3", "sqlglot", "filelock", "rich", "typer", "duckdb")


@pytest.mark.parametrize(
    ("statement", "heavy"),
    [
        ("import refimpl.client.table", tuple(name for name in HEAVY)),
        ("import refimpl; refimpl.open", ("pyarrow", "pyspark", "pandas", "numpy", "sqlglot", "rich", "typer")),
        ("import refimpl.cli", ("pyarrow", "pyspark", "pandas", "numpy", "sqlglot")),
        ("import refimpl.spark.data_source", ("pandas", "rich", "typer", "duckdb")),
    ],
)
def test_import_loads_no_unused_heavy_library(statement: str, heavy: tuple[str, ...]) -> None:
    script = f"{statement}\nimport sys\nprint(*(name for name in {heavy!r} if name in sys.modules))"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    assert ran.stdout.split() == []


def test_importing_the_package_loads_no_other_library() -> None:
    """The budget is 150 ms. Instead of a measurement, this test checks that the import loads only the package
    itself."""
    script = "import sys; before = set(sys.modules); import refimpl; print(*set(sys.modules) - before)"
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    packages = {name.partition(".")[0] for name in ran.stdout.split()}
    assert packages - sys.stdlib_module_names == {"refimpl"}


def test_no_utils_module_and_no_manager_class() -> None:
    """A module or class is named after its subject, not after its role."""
    assert [m for m in MODULES if m.rpartition(".")[2] in ("utils", "util", "helpers", "common", "misc")] == []
    everything = (node for m in MODULES for node in statements(m, for_types=True))
    named = [node.name for node in everything if isinstance(node, ast.ClassDef)]
    assert [name for name in named if name.endswith(("Manager", "Helper", "Util", "Utils"))] == []


def test_no_code_branches_on_the_feature() -> None:
    """Every difference is a field of `TableFeature`."""
    features, branches = {"MANAGED_COMMIT", "CATALOG_MANAGED"}, []
    for module in MODULES:
        if not any(feature in text_of(module) for feature in features):
            continue
        for node in walk(tree_of(module)):
            if isinstance(node, ast.Compare):
                names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                names |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
                if names & features:
                    branches.append(f"{module}:{node.lineno}")
    assert branches == []
