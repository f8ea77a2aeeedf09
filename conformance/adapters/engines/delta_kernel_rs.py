"""Delta Kernel for Rust (crate `delta_kernel`) with its Unity Catalog crates: `engine:delta-kernel-rs`.

The program in `delta_kernel_rs/` speaks the shared interface on standard input and output; this module builds it with
cargo from crates.io, and passes requests on. The program calls the kit's owner only through the published Unity Catalog
crates: `load_table` of `unity-catalog-delta-rest-client`, `snapshot_builder_from_load_table`, `log_tail_from_commits`
and `UCCommitter` of `delta-kernel-unity-catalog`. It commits to a plain table through `FileSystemCommitter`, and reads
and writes files through the default engine's local object store.

What the engine does by itself, with its place in the crates of version 0.30.1:

- **Retries.** `load_table` is sent again three times after a 5xx answer or a broken connection
  (`unity-catalog-delta-rest-client`, `http.rs`, `execute_with_retry`; the waits between are configured as 1 ms here).
  `update_table` is sent once (`clients/commits.rs`).
- **Conflicts.** `UCCommitter` turns every failed `update_table` into `KernelError::Generic`, also a 409
(`committer.rs`, `commit_version_non_zero`, its issue 2970), and the kernel never rebases. The program reads the
HTTP status in the error's text, as a connector must: 409 is a lost race, 429 a full backlog, another 4xx `rejected`,
and any other error `unknown`. It proposes an append again on the newest snapshot, at most 100 times, and only while
protocol and metadata do not change; after a full backlog it publishes all commits first. Any other transaction that
lost its version is answered `unsupported`, because the kernel does not compare it with the winners. So the kit
judges no rule about conflicts.
- **Caches.** Only the snapshot that a caller keeps: each simulated client keeps its newest snapshot, and the next read
updates it with `Snapshot::builder_from`. After a commit it keeps the kernel's post-commit snapshot.
- **Publishing.** `UCCommitter`'s documentation asks connectors to publish after each commit; the program does, with
  `Snapshot::publish`, which copies each staged file unless its target exists.
- **Maintenance.** `Snapshot::checkpoint` and `write_checksum`. The kernel's log compaction is disabled (issue 2337).
- **Batches.** Files of the log are read with the default engine's buffer sizes. An owner does not see these sizes.

The program creates a table as the kernel's documentation says: `create_staging_table`, `create_table` of the kernel
with `get_required_properties_for_disk`, `build_uc_create_table_request`, and `create_table` of the REST client.

The kernel has no API to change properties, protocol features or partition columns of a table. It cannot list the
applications of a table either: the program takes their names from the log's files, and asks the kernel for each.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final

from conformance.adapters.engines.engine import CATALOG_MANAGED, EngineClient, unsupported
from conformance.adapters.jvm import jars
from conformance.adapters.stdio import StdioSubject
from conformance.interface import messages as m
from conformance.interface.log_names import FILESYSTEM
from conformance.interface.subject import Ask, UsageError

SOURCE: Final = Path(__file__).with_name("delta_kernel_rs")
PROGRAM: Final = "delta-kernel-rs-subject"
NEWEST: Final = "0.30.1"
CATALOG_CRATES: Final[Mapping[str, str]] = {"0.30.1": "0.2.0", "0.30.0": "0.2.0"}
"""For each version of `delta_kernel`, the version of `delta-kernel-unity-catalog`. Version 0.29 has another API for
transactions; for older versions the crate was not published."""
CAN: Final = (
    "read_version", "reads", "adds", "removes", "data_change", "isolation", "application", "domain", "if_needed",
)  # fmt: skip
"""The fields of a transaction for which the kernel has public calls."""
VERSIONS: Final = tuple(CATALOG_CRATES)
FETCH: Final = "delta-commit-conformance engines --fetch delta-kernel-rs"


class DeltaKernelRs(EngineClient):
    engine: ClassVar[str] = "delta-kernel-rs"
    title: ClassVar[str] = "Delta Kernel for Rust"
    profiles: ClassVar[tuple[str, ...]] = ("core", "staged", "backlog-limit", "discovery")
    features: ClassVar[tuple[str, ...]] = (CATALOG_MANAGED, FILESYSTEM)
    commit_modes: ClassVar[dict[str, tuple[str, ...]]] = {CATALOG_MANAGED: ("staged",), FILESYSTEM: ("direct",)}

    def __init__(self, owner: Ask, directory: Path, version: str | None = None) -> None:
        super().__init__(owner, directory, version)
        self._program = StdioSubject(
            [str(program(version or NEWEST))], timeout=self.seconds, directory=directory, owner_url=self.url
        )

    @classmethod
    def missing(cls, version: str | None) -> str:
        version = version or NEWEST
        if version not in VERSIONS:
            return f"unsupported version {version!r} of delta_kernel; expected one of {', '.join(VERSIONS)}"
        if program(version).is_file():
            return ""
        command = FETCH if version == NEWEST else f"{FETCH}@{version}"
        return f"its program is not built; run: {command} (needs cargo, 5 minutes, and 1.5 GB during the build)"

    @classmethod
    def fetch(cls, version: str | None) -> str:
        """Build the program with cargo. It shows its progress on the standard error."""
        version = version or NEWEST
        if version not in VERSIONS:
            raise UsageError(cls.missing(version))
        target = program(version)
        if not target.is_file():
            _build(version, target)
        return f"the program of Delta Kernel {version} is {target}"

    @property
    def engine_version(self) -> str:
        return self.version or NEWEST

    def transact(self, client: str, request: m.Transact) -> m.Answer:
        return unsupported(request, *CAN) or self._passed(client, request)

    def _passed(self, client: str, request: m.Request) -> m.Answer:
        """The program's answer. It answers an unknown request with `unsupported` and no reason; this method adds
        one."""
        answer = self._program.ask(client, request)
        without = isinstance(answer, m.Unsupported) and not answer.reason
        return m.Unsupported(reason=self.lacks(m.name_of(request))) if without else answer

    snapshot = create_table = backfill_to_version = checkpoint = compact = checksum = _passed

    def close(self) -> None:
        self._program.close()
        super().close()


def program(version: str) -> Path:
    """The path of that version's program, built or not. Its folder's name holds the digest of its source."""
    digest = hashlib.sha256()
    for path in sorted(path for path in SOURCE.rglob("*") if path.is_file()):
        digest.update(path.read_bytes())
    return jars.cache() / f"delta-kernel-rs-{version}-{digest.hexdigest()[:12]}" / PROGRAM


def _build(version: str, target: Path) -> None:
    """Build in another folder, and move that as a whole, so that concurrent calls are safe. Raises `UsageError`."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise UsageError("no `cargo` on the PATH; install Rust 1.88 or newer to build the program of Delta Kernel")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".building-", dir=target.parent) as scratch:
        package = Path(scratch, "package")
        shutil.copytree(SOURCE, package)
        manifest = package / "Cargo.toml"
        manifest.write_text(_manifest(manifest.read_text("utf-8"), version), "utf-8")
        folder = Path(scratch, "target")
        done = subprocess.run(
            [cargo, "rustc", "--bin", PROGRAM, "--", "-C", "strip=symbols"],
            cwd=package,
            env={**os.environ, "CARGO_TARGET_DIR": str(folder), "DELTA_KERNEL_VERSION": version},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode != 0:
            raise UsageError(f"cargo failed with exit code {done.returncode}; its output is above")
        (folder / "debug" / PROGRAM).replace(target)


def _manifest(text: str, version: str) -> str:
    """The text of the manifest, changed for that version of `delta_kernel`."""
    text = text.replace(f'"={CATALOG_CRATES[NEWEST]}"', f'"={CATALOG_CRATES[version]}"')
    return text.replace(f'"={NEWEST}"', f'"={version}"')
