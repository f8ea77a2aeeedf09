"""Third-party Java libraries by Maven coordinate: Delta Lake, Unity Catalog's client, Amazon's client of DynamoDB.

The list is `pom.xml` next to this module. Maven copies the files once into a folder whose name contains the list's
digest; `DELTA_CONFORMANCE_JARS` names another folder, for example one that was filled on another machine. Only the
command `jars` and the option `--fetch` of `engines` and `matrix` download anything.

Another version of Delta has its own folder, with the libraries of Delta Kernel only. Not every library has every patch
release of Delta: if it is missing, the newest earlier release of the same minor version is used, except for
`delta-kernel-api`.
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from conformance.interface.subject import how_to_install

POM: Final = Path(__file__).with_name("pom.xml")
VARIABLE: Final = "DELTA_CONFORMANCE_JARS"
COMMAND: Final = "delta-commit-conformance jars"
SECONDS: Final = 600
"""The timeout of Maven."""
KERNEL: Final = "unity"
"""The group of Delta Kernel, the only one for other versions of Delta."""
MAIN: Final = "delta-kernel-api"
"""The library whose version is that of Delta."""
_UNITY_CLIENTS: Final[Mapping[str, str]] = {"4.2": "0.4.0", "4.3": "0.5.0"}
"""The version of Unity Catalog's client with which a minor version of Delta was built, if it differs from the list."""
_UNRELEASED: Final[Mapping[str, tuple[str, ...]]] = {"4.2": ("unitycatalog-hadoop",)}
"""The libraries that did not exist yet for a minor version of Delta."""

_STORAGE: Final = ("delta-storage",)
_SPARK: Final = ("delta-spark_4.2_2.13", *_STORAGE, "aws-java-sdk-dynamodb")
_DYNAMODB: Final = (
    *_SPARK, "aws-java-sdk-core", "jmespath-java", "joda-time", "httpclient", "httpcore", "ion-java",
    "jackson-dataformat-cbor",
)  # fmt: skip
_UNITY: Final = (
    *_STORAGE, "delta-kernel-api", "delta-kernel-defaults", "delta-kernel-unitycatalog", "unitycatalog-client",
    "unitycatalog-hadoop", "jackson-databind-nullable",
)  # fmt: skip
GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "storage": _STORAGE,
    "spark": _SPARK,
    "dynamodb": _DYNAMODB,
    "unity": _UNITY,
    "all": tuple(dict.fromkeys((*_DYNAMODB, *_UNITY))),
}
"""Artifact ids by purpose: Delta's storage interfaces alone; Delta on Spark (a coordinator is not found without
Amazon's class); the DynamoDB coordinator, called directly; Delta's client of Unity Catalog."""


class JarsError(Exception):
    """Libraries are missing, or cannot be fetched. `problem` says which, and what to do."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def classpath(group: str, *, hadoop: bool = False, delta: str | None = None) -> str:
    """The group's libraries in the form of the JVM's `-classpath`; `hadoop` adds all libraries of PySpark, for a JVM
    that is not Spark's own. `delta`: another version of Delta, which has only the group `unity`. Raises `JarsError` if
    one is missing, `KeyError` for an unknown group."""
    return os.pathsep.join([*map(str, jars(group, delta)), *([pyspark_jars()] if hadoop else [])])


def jars(group: str, delta: str | None = None) -> tuple[Path, ...]:
    """The group's files. Raises `JarsError` if one of them is missing."""
    if _is_other(delta):
        return _of_version(group, delta or "")
    names = _file_names()
    wanted = [folder() / names[artifact] for artifact in GROUPS[group]]
    absent = [path.name for path in wanted if not path.is_file()]
    if absent:
        raise JarsError(
            f"Java libraries are missing in {folder()}: {', '.join(absent)}; fetch them with: {COMMAND} "
            f"(needs Maven), or set {VARIABLE} to a folder that has them"
        )
    return tuple(wanted)


def _is_other(delta: str | None) -> bool:
    return delta is not None and delta != version(MAIN)


def _of_version(group: str, delta: str) -> tuple[Path, ...]:
    if not set(GROUPS[group]) <= set(GROUPS[KERNEL]):
        raise JarsError(f"Delta {delta} has no group {group!r}; other versions are fetched with Delta Kernel only")
    target, paths = _folder_of(delta), []
    for artifact in GROUPS[group]:
        if artifact in _UNRELEASED.get(_minor(delta), ()):
            continue
        fitting = sorted(target.glob(f"{artifact}-[0-9]*.jar"))
        if not fitting:
            raise JarsError(
                f"the Java library {artifact} of Delta {delta} is missing in {target}; fetch it with: "
                f"delta-commit-conformance engines --fetch delta-kernel@{delta} (needs Maven)"
            )
        paths.append(fitting[-1])
    return tuple(paths)


def pyspark_jars() -> str:
    """PySpark's own libraries, Hadoop and Jackson among them, as one entry of a class path. Raises `JarsError`."""
    spark = importlib.util.find_spec("pyspark")
    home = None if spark is None or spark.origin is None else Path(spark.origin).parent / "jars"
    if home is None or not home.is_dir():
        raise JarsError(f"PySpark, whose jars contain Hadoop, is missing; install it: {how_to_install('jvm')}")
    return str(home / "*")


def folder() -> Path:
    """The folder of the files, which need not exist."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).absolute()
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    return cache() / f"jars-{digest}"


def cache() -> Path:
    """This user's folder for fetched and built files."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute() / "delta-commit-conformance"


def _folder_of(delta: str) -> Path:
    """The folder of another version of Delta. Raises `JarsError` for an invalid version."""
    if not re.fullmatch(r"[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.-]*", delta):
        raise JarsError(
            f"invalid Delta version {delta!r}; expected a version of {MAIN} on Maven, such as {version(MAIN)}"
        )
    return folder().with_name(f"{folder().name}-delta-{delta}")


def fetch(delta: str | None = None) -> Path:
    """Fetch all missing libraries, or those of Delta Kernel in another version. Files appear atomically, for concurrent
    calls. Raises `JarsError`, also for a version that does not exist."""
    group, target, pom = "all", folder(), POM.read_text(encoding="utf-8")
    if _is_other(delta):
        group, target, pom = KERNEL, _folder_of(delta or ""), _pom_of(delta or "")
    try:
        jars(group, delta)
        return target
    except JarsError:
        pass
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=target.parent) as scratch:
        _copy_dependencies(Path(scratch), pom, delta)
        target.mkdir(exist_ok=True)
        for path in sorted(Path(scratch).glob("*.jar")):
            path.replace(target / path.name)
    jars(group, delta)
    return target


def _pom_of(delta: str) -> str:
    """The list of libraries for Delta Kernel in that version."""
    minor = _minor(delta)
    project = ElementTree.parse(POM).getroot()
    versions = {**_versions(), MAIN: delta}
    dependencies = project.find("dependencies")
    for dependency in list(dependencies if dependencies is not None else ()):
        artifact = dependency.findtext("artifactId", "")
        number = dependency.find("version")
        if artifact not in GROUPS[KERNEL] or artifact in _UNRELEASED.get(minor, ()) or number is None:
            dependencies.remove(dependency)  # type: ignore[union-attr]
        elif artifact.startswith("unitycatalog-"):
            number.text = _UNITY_CLIENTS.get(minor, versions[artifact])
        elif artifact.startswith("delta-"):
            number.text = f"[{delta}]" if artifact == MAIN else f"[{minor}.0,{delta}]"
    return ElementTree.tostring(project, encoding="unicode")


def _minor(delta: str) -> str:
    return ".".join(delta.split(".")[:2])


def _copy_dependencies(scratch: Path, content: str, delta: str | None) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsError(
            f"no `mvn` on the PATH; install Maven, which downloads the Java libraries, or set {VARIABLE} to a folder "
            f"that has them ({len(GROUPS['all'])} files, listed in {POM})"
        )
    pom = scratch / "pom.xml"
    pom.write_text(content, encoding="utf-8")
    command = [maven, "-B", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={scratch}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise JarsError(f"Maven did not finish within {SECONDS} s; check the network") from error
    if done.returncode != 0:
        output = re.sub("\x1b\\[[0-9;]*m", "", done.stdout + done.stderr)
        if "No versions available for" in output:
            raise JarsError(f"there is no {MAIN} of Delta {delta} on Maven Central; its versions are listed there")
        lines = [line for line in output.splitlines() if "ERROR" in line][:3]
        raise JarsError(f"Maven failed with exit code {done.returncode}: {' | '.join(lines) or 'no output'}")


def version(artifact: str) -> str:
    """The version of a library in the list. Raises `KeyError`."""
    return _versions()[artifact]


def _file_names() -> dict[str, str]:
    """The name of the file that Maven writes, by artifact id."""
    return {artifact: f"{artifact}-{number}.jar" for artifact, number in _versions().items()}


def _versions() -> dict[str, str]:
    project = ElementTree.parse(POM).getroot()
    properties = project.iterfind("properties/*")
    named = {f"${{{element.tag}}}": element.text or "" for element in properties}
    versions = {}
    for dependency in project.iter("dependency"):
        artifact, number = (dependency.findtext(tag, "") for tag in ("artifactId", "version"))
        versions[artifact] = named.get(number, number)
    return versions
