"""Readers that use a checkpoint, a compaction, a checksum or a hint where it does not serve, or a log with a hole."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from conformance.interface import messages as m
from conformance.models.client import ModelClient
from conformance.models.log_files import HINT, Checkpoint, Listing, actions_in, checkpoint_actions
from conformance.models.reader import Actions, Refused, Resolved, State
from conformance.mutants.registry import mutant


@mutant("LOG-18", side="client")
class SkipsTheCommitAfterACheckpoint(ModelClient):
    """Skips the first commit after the checkpoint."""

    def _start(self, listed: Listing, target: int) -> State:
        state = super()._start(listed, target)
        if 0 <= state.version < target:
            state.version += 1
        return state


@mutant("LOG-18", side="client")
class AppliesListedCommitsTwice(ModelClient):
    """Applies all commits that the owner lists after the checkpoint, even those that the checkpoint contains."""

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        start = self._start(listed, target)
        for version in sorted(version for version in table.owned if version <= start.version):
            self._apply(start, start.version, self._commit(table, listed, table.owned, version))
        if start.version == target:
            state.files = start.files
        return state


@mutant("MC-CHECKPOINT-02", "LOG-18", side="client")
class StartsFromTheOldestCheckpoint(ModelClient):
    """Uses the first listed checkpoint instead of the newest one."""

    def _checkpoints(self, listed: Listing, target: int) -> list[Checkpoint]:
        return super()._checkpoints(listed, target)[::-1]


@mutant("LOG-19", side="client")
class UsesIncompleteCheckpoints(ModelClient):
    """Reads the existing parts of a checkpoint without counting them."""

    def _checkpoints(self, listed: Listing, target: int) -> list[Checkpoint]:
        counted = [replace(each, parts=len(each.files)) for each in listed.checkpoints]
        return super()._checkpoints(replace(listed, checkpoints=counted), target)


@mutant("LOG-21", bugs=("FB31",), side="client")
class TrustsTheHint(ModelClient):
    """Opens the checkpoint that `_last_checkpoint` names, and fails if it was deleted."""

    def _start(self, listed: Listing, target: int) -> State:
        named = self._named(listed)
        if named is not None and named <= target and all(each.version != named for each in listed.checkpoints):
            raise Refused(f"the checkpoint of version {named} is gone")
        return super()._start(listed, target)

    def _named(self, listed: Listing) -> int | None:
        folder = next(iter(listed.commits.values())).parent
        try:
            return int(json.loads((folder / HINT).read_text())["version"])
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise Refused(f"{HINT} cannot be read") from error


@mutant("LOG-15", side="client")
class StartsFromALaterCheckpoint(ModelClient):
    """Uses the checkpoint that the hint names, even above the requested version."""

    def _start(self, listed: Listing, target: int) -> State:
        state = super()._start(listed, max(listed.commits))
        if state.version > target:
            state.version = target
        return state


@mutant("LOG-22", "LOG-15", side="client")
class UsesACompactionBeyondTheVersion(ModelClient):
    """Applies a compaction that ends after the requested version."""

    def _compacted(self, listed: Listing, owned: dict[int, m.CommitEntry], start: int, target: int) -> int | None:
        return super()._compacted(listed, owned, start, max(listed.commits))

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        state.version = target
        return state


@mutant("LOG-22", side="client")
class AppliesOldCompactions(ModelClient):
    """Applies every listed compaction, even one that ends before the checkpoint: removed files come back."""

    def _start(self, listed: Listing, target: int) -> State:
        state = super()._start(listed, target)
        version = state.version
        for (_, end), path in listed.compactions.items():
            if end <= version:
                self._apply(state, version, actions_in(path))
        return state


@mutant("LOG-24", bugs=("FB33",), side="client")
class TakesDomainsFromAnyChecksum(ModelClient):
    """Reads metadata domains from the newest checksum, whatever its version."""

    def _replay(self, table: Resolved, listed: Listing, target: int) -> State:
        state = super()._replay(table, listed, target)
        older = [version for version in listed.checksums if version <= target]
        if older:
            try:
                checksum = json.loads(listed.checksums[max(older)].read_text())
                state.domains = {each["domain"]: each for each in checksum["domainMetadata"]}
            except (ValueError, TypeError, KeyError):
                return state
        return state


@mutant("LOG-25", bugs=("FB33",), side="client")
class FailsOnACorruptChecksum(ModelClient):
    """Fails on an unreadable checksum."""

    def _disagreements(self, listed: Listing, state: State) -> list[str]:
        if state.version in listed.checksums:
            try:
                json.loads(listed.checksums[state.version].read_text())["numFiles"]
            except (ValueError, TypeError, KeyError) as error:
                raise Refused("the checksum is corrupt") from error
        return super()._disagreements(listed, state)


@mutant("LOG-26", side="client")
class IgnoresChecksums(ModelClient):
    """Does not compare its snapshot with the checksum of the version."""

    def _disagreements(self, listed: Listing, state: State) -> list[str]:
        return []


@mutant("LOG-27", side="client")
class SkipsMissingCommits(ModelClient):
    """Skips a commit that does not exist."""

    def _commit(self, table: Resolved, listed: Listing, owned: dict[int, m.CommitEntry], version: int) -> Actions:
        return super()._commit(table, listed, owned, version) if version in {*listed.commits, *owned} else []


@mutant("LOG-28", side="client")
class ReadsAnEmptyFileAsACommit(ModelClient):
    """Reads a commit of zero bytes as one without actions."""

    def _opened(self, path: Path) -> Actions:
        return [] if path.stat().st_size == 0 else super()._opened(path)


@mutant("LOG-28", side="client")
class SkipsInvalidLines(ModelClient):
    """Skips a truncated line at the end of a commit."""

    def _opened(self, path: Path) -> Actions:
        actions = []
        for line in path.read_text().splitlines():
            try:
                actions.append(json.loads(line))
            except ValueError:
                continue
        return actions


@mutant("FIELD-03", bugs=("FB39",), side="client")
class FailsOnACorruptCheckpoint(ModelClient):
    """Fails on an unreadable checkpoint, although all commits exist."""

    def _start(self, listed: Listing, target: int) -> State:
        for checkpoint in self._checkpoints(listed, target):
            checkpoint_actions(checkpoint)
            break
        return super()._start(listed, target)


@mutant("LOG-20", side="client")
class MixesCheckpointsOfAVersion(ModelClient):
    """Combines parts of different checkpoints of a version."""

    def _list(self, table: Resolved) -> Listing:
        listed = super()._list(table)
        mixed: dict[int, dict[str, Path]] = {}
        for each in listed.checkpoints:
            if each.parts > 1:
                mixed.setdefault(each.version, {}).update({path.name.split(".")[2]: path for path in each.files})
        listed.checkpoints = [each for each in listed.checkpoints if each.parts == 1]
        listed.checkpoints += [
            Checkpoint(version=version, files=tuple(parts.values()), parts=len(parts), rank=0)
            for version, parts in mixed.items()
        ]
        return listed
