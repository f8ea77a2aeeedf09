"""The log checker: searches for an order of the operations that explains all answers.

Let t_v be the time at which version v is ratified: t_0 <= t_1 <= ...; it is before all events for versions from before
the history, and after all events for versions that the final log lacks. An operation takes effect at one moment between
its invoke and its answer. So:

  an attempt in the log         t_v >= the earliest invoke among its requests that were answered as ratified or not at
                                all (no other can have landed it), and t_v <= the end of each that was ratified
  a conflict at v               t_v <= its end; also for a replay of a landed attempt
  a gap at v                    t_{v-1} >= its invoke
  a rejection with latest k     t_k <= its end; if freshness is promised, t_{k+1} >= its invoke
  a read with latest k          t_k <= its end, and t_{k+1} >= its invoke unless it may be stale
  an attempt resolved as landed t_v <= its end

First the content is compared, independent of times: attempts are unique, all answers agree, ratified commits exist, and
existing commits were proposed. Then one sweep: a version is not earlier than any lower bound of it or of an earlier
version; if that exceeds its own upper bound, two observations contradict each other. The checker is complete: if all
bounds hold, the earliest times that they allow are a history in which every answer is right. It is linear in the number
of operations and versions.

Freedoms, which are not violations: the latest version -1 of a managedCommit owner is not a claim, and a reader of such
a table need not ask its owner (columns); an owner may not know a commit by put-if-absent yet, so a read need not return
it; a conflict may have no details, or old ones; without the profile `idempotent-retry` a replay may be answered as a
conflict; a rejection can have any reason; an attempt that was resolved as not landed may be answered with a true
conflict or gap, unless `tombstone-first` promises that it gets none after its tombstone.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Final

from conformance.history.events import Content, Header, Promise
from conformance.history_checkers import bounds
from conformance.history_checkers.bounds import (
    INFINITY,
    MOST_CONTRADICTIONS,
    MOST_OF_ONE_RULE,
    Bound,
    Breaches,
    Early,
    Late,
    Observations,
    Window,
)
from conformance.history_checkers.columns import ANY_VERSION, NO_ATTEMPT, Rows, Sighting, TableColumns
from conformance.history_checkers.rules import Rule

_FIELDS = ("bytes", "actions")


def check_content(table: TableColumns, breaches: Breaches) -> None:
    """All observations of a version agree with each other, and with the proposal of its attempt. If both bytes and
    actions of the same two differ, the bytes are reported."""
    reported: set[tuple[int, int, int]] = set()
    for clash in table.clashes:
        pair = (clash.version, clash.first, clash.second)
        if pair in reported:
            continue
        reported.add(pair)
        rule = Rule.VERSION_CHANGED if clash.field == "attempt" else Rule.CONTENT_CHANGED
        problem = (
            f"Version {clash.version} differs: {{first}} returned {clash.field} {_short(clash.first_value)}, "
            f"{{second}} returned {_short(clash.second_value)}."
        )
        breaches.add(rule, clash.version, problem, clash.first, clash.second)
    for version in sorted({version for version, _ in table.contents}):
        kept = table.log_contents.get(version)
        for field in _FIELDS:
            sighting = table.contents.get((version, field))
            if sighting is not None and _differs(breaches, version, field, sighting, _of(kept, field), None):
                break
    for index, attempt in enumerate(table.log if table.missing is None else ()):
        if attempt != NO_ATTEMPT and attempt in table.proposed:
            _check_proposal(table, breaches, table.base + index, table.proposed[attempt])


def _check_proposal(
    table: TableColumns, breaches: Breaches, version: int, proposals: list[tuple[Content, int]]
) -> None:
    kept = table.log_contents.get(version)
    for field in _FIELDS:
        proposed = [Sighting(value, number) for content, number in proposals if (value := _of(content, field))]
        if not proposed:
            continue
        values = {sighting.value for sighting in proposed}
        stands, sighting = _of(kept, field), table.contents.get((version, field))
        wrong = stands not in values and _differs(breaches, version, field, proposed[0], stands, None)
        if sighting is not None and sighting.value not in values:
            wrong |= _differs(breaches, version, field, proposed[0], sighting.value, sighting.id)
        if wrong:
            break


def _of(content: Content | None, field: str) -> str | None:
    return None if content is None else content.bytes if field == "bytes" else content.actions


def _differs(
    breaches: Breaches, version: int, field: str, sighting: Sighting, other: str | None, second: int | None
) -> bool:
    """Report a difference. `second`: the operation that returned the other value; None: the final log."""
    if other is None or other == sighting.value:
        return False
    where = "the final log" if second is None else "{second}"
    problem = (
        f"The {field} of version {version} are {_short(sighting.value)} in {{first}}, and {_short(other)} in {where}."
    )
    breaches.add(Rule.CONTENT_CHANGED, version, problem, sighting.id, second)
    return True


def _short(value: str) -> str:
    return value if len(value) <= 16 else f"{value[:12]}..."


IDEMPOTENT_RETRY: Final = "idempotent-retry"


class LogChecker:
    """Compares one table's log with all observations. `check` fills `breaches`; afterwards `lower` and `upper` have,
    per version of the log, the times before and after which it cannot have been ratified."""

    def __init__(self, table: TableColumns, header: Header, breaches: Breaches) -> None:
        self.table = table
        self.header = header
        self.breaches = breaches
        self.skew = header.clock.skew
        self.log: list[int] = table.log.tolist()
        self.window = Window(table.base, len(self.log), self._lag())
        self.lower = [-INFINITY] * len(self.log)
        self.upper = [INFINITY] * len(self.log)
        self.first_sent = [INFINITY] * len(self.log)
        self.contradictions = 0
        self.early_groups: list[Observations[Early]] = []
        self.late_groups: list[Observations[Late]] = []

    def check(self) -> bool:
        """Run the check. Returns whether times could be compared, which is impossible for a log with gaps."""
        if self.table.missing is not None:
            self._report_gap(self.table.missing)
            return False
        self._place_sends()
        self._check_log()
        self._check_answers()
        self._gather()
        self._sweep()
        return True

    def _lag(self) -> list[int] | None:
        unseen = self.table.unseen
        if unseen is not None and unseen.commit_mode is None and Promise.FRESH_DIRECT not in self.header.promises:
            return [len(self.table.log)] * len(self.table.log)  # any of them may be direct
        if not self.table.direct or Promise.FRESH_DIRECT in self.header.promises:
            return None
        lag, following = [0] * len(self.table.log), len(self.table.log)
        for index in range(len(lag) - 1, -1, -1):
            if self.table.base + index not in self.table.direct:
                following = index
            lag[index] = following
        return lag

    def _attempt_at(self, version: int) -> int:
        index = version - self.window.base
        return self.log[index] if 0 <= index < self.window.length else NO_ATTEMPT

    @property
    def _of_the_log(self) -> str:
        return "of the final log" if self.table.unseen is None else "by the answers"

    def _name_at(self, version: int) -> str:
        attempt = self._attempt_at(version)
        return "nothing" if attempt == NO_ATTEMPT else f"attempt {self.table.attempt_names[attempt]}"

    def _report_gap(self, missing: int) -> None:
        rows = self.table.ratified
        ratified = next((rows.id[row] for row, version in enumerate(rows.version) if version == missing), None)
        if ratified is not None:
            self.breaches.add(
                Rule.COMMIT_FORGOTTEN,
                missing,
                f"Version {missing} was ratified: {{first}}. But the final log (published and listed commits) has "
                f"versions after {missing} and not that one.",
                ratified,
            )
            return
        known = self.table.identities.get(missing)
        shown = (
            (f" {{first}} returned it as attempt {self.table.attempt_names[known[0]]}.", known[1]) if known else None
        )
        problem = f"The final log has versions after {missing}, but no version {missing}."
        self.breaches.add(Rule.LOG_HAS_GAP, missing, problem + (shown[0] if shown else ""), shown[1] if shown else None)

    def _place_sends(self) -> None:
        """Find the requests that can have landed the versions of the log, and the ratified ones that are not in it."""
        rows, log, first_sent, ends = self.table.ratified, self.log, self.first_sent, self.upper
        base, length = self.window.base, self.window.length
        lost: list[int] = []
        columns = zip(rows.attempt, rows.version, rows.invoked, rows.answered, strict=True)
        for row, (attempt, version, invoked, answered) in enumerate(columns):
            index = version - base
            if 0 <= index < length and log[index] == attempt:
                if invoked < first_sent[index]:
                    first_sent[index] = invoked
                if answered < ends[index]:
                    ends[index] = answered
            elif index >= 0:
                lost.append(row)
        for row in lost:
            self._lost(row)
        unknown = self.table.unknown
        landed: dict[int, int] | None = None
        for attempt, version, invoked in zip(unknown.attempt, unknown.version, unknown.invoked, strict=True):
            if version == ANY_VERSION:
                landed = landed or {entry: base + at for at, entry in enumerate(log)}
                version = landed.get(attempt, ANY_VERSION)
            index = version - base
            if 0 <= index < length and log[index] == attempt and invoked < first_sent[index]:
                first_sent[index] = invoked

    def _lost(self, row: int) -> None:
        rows, table = self.table.ratified, self.table
        attempt, version = rows.attempt[row], rows.version[row]
        index = version - self.window.base
        if index < table.before and self.log[index] in (NO_ATTEMPT, attempt):  # its attempt is known now
            self.log[index] = attempt
            return
        if not self.breaches.has_room(Rule.RATIFIED_BUT_LOST):
            return
        name = table.attempt_names[attempt]
        instead = self._name_at(version)
        problem = f"{{first}} got the answer that attempt {name} is version {version}"
        other = self._ratified_at(version) if instead != "nothing" else None
        if table.unseen is None:
            problem += (
                f"; in the final log that is {instead}."
                if instead != "nothing"
                else "; the final log has no such version."
            )
            if other is not None:
                problem += " {second} got that answer for the other."
        elif other is not None:
            problem += f", and {{second}} got that answer for {instead}."
        else:  # beyond every version that can exist
            problem += f", and {self.end_in_words()}."
        self.breaches.add(Rule.RATIFIED_BUT_LOST, version, problem, rows.id[row], other, name)

    def end_in_words(self) -> str:
        """The end of the log, in words."""
        last = self.table.end - 1
        if self.table.unseen is not None:
            exist = f"no version after {last} can exist" if last >= 0 else "no version can exist"
            return f"{exist}: no other attempt can have landed"
        return f"the final log ends with version {last}" if last >= 0 else "the final log is empty"

    def _ratified_at(self, version: int) -> int | None:
        """An operation whose answer shows that the log's commit of a version exists."""
        rows = self.table.ratified
        wanted = self._attempt_at(version)
        pairs = zip(rows.attempt, rows.version, rows.id, strict=True)
        return next((number for attempt, at, number in pairs if at == version and attempt == wanted), None)

    def _check_log(self) -> None:
        table = self.table
        known = [attempt for attempt in self.log if attempt != NO_ATTEMPT]
        twice: set[int] = set()
        if len(set(known)) != len(known):
            twice = {attempt for attempt, count in Counter(known).items() if count > 1}
            for attempt in sorted(twice):
                self._landed_twice(attempt)
        nobodys = [
            index
            for index in range(table.before, len(self.log))
            if self.first_sent[index] == INFINITY and (table.unseen is None or self.log[index] != NO_ATTEMPT)
        ]
        if nobodys:
            proposals = self._proposals()
            for index in nobodys:
                if self.log[index] in twice:
                    continue
                self._unexplained(table.base + index, proposals.get(self.log[index]))

    def _landed_twice(self, attempt: int) -> None:
        name = self.table.attempt_names[attempt]
        versions = [self.table.base + index for index, entry in enumerate(self.log) if entry == attempt]
        problem = f"Attempt {name} is version {' and version '.join(map(str, versions))} {self._of_the_log}."
        self.breaches.add(Rule.LANDED_TWICE, versions[1], problem, attempt=name)

    def _proposals(self) -> dict[int, set[int]]:
        """For every attempt that was sent, the versions for which it was proposed."""
        table = self.table
        versions: dict[int, set[int]] = {}
        for rows in (table.ratified, table.unknown, table.conflicts, table.gaps, table.refused):
            for attempt, version in zip(rows.attempt, rows.version, strict=True):
                versions.setdefault(attempt, set()).add(version)
        return versions

    def _unexplained(self, version: int, proposed: set[int] | None) -> None:
        """Report a version that no request can have created."""
        name = self.table.attempt_names[self._attempt_at(version)]
        stands = f"Attempt {name} is version {version} {self._of_the_log}"
        if proposed is not None and proposed & {version, ANY_VERSION}:
            problem = f"{stands}, but every request that proposed it for that version was rejected."
            self.breaches.add(Rule.REFUSED_BUT_LANDED, version, problem, attempt=name)
        elif proposed is not None:
            problem = f"{stands}, but it was proposed for version {', '.join(map(str, sorted(proposed)))} only."
            self.breaches.add(Rule.NOT_PROPOSED, version, problem, attempt=name)
        elif not self.header.open_world:
            self.breaches.add(Rule.NOT_PROPOSED, version, f"{stands}, and no request proposed it.")

    def _check_answers(self) -> None:
        """Compare answers with the log, without times."""
        table, add = self.table, self.breaches.add
        for number, proposed, answered in table.elsewhere[:MOST_OF_ONE_RULE]:
            problem = f"{{first}} proposed version {proposed} and got the answer that it is version {answered}."
            add(Rule.RATIFIED_ELSEWHERE, answered, problem, number)
        for number, listed, answered in table.beyond_latest[:MOST_OF_ONE_RULE]:
            problem = f"{{first}} got version {listed} in a list, and {answered} as the latest version."
            add(Rule.LISTED_BEYOND_LATEST, listed, problem, number)
        self._check_refusals()
        for version, (attempt, number) in table.identities.items():
            known = self._attempt_at(version)
            if known not in (attempt, NO_ATTEMPT) and self.breaches.has_room(Rule.VERSION_CHANGED):
                name = table.attempt_names[attempt]
                known_as = self._name_at(version)
                problem = f"{{first}} got the answer that version {version} is attempt {name}; it is {known_as}."
                add(Rule.VERSION_CHANGED, version, problem, number, self._ratified_at(version))
        if table.landed or table.not_landed:
            self._check_outcomes()

    def _check_refusals(self) -> None:
        conflicts, gaps = self.table.conflicts, self.table.gaps
        idempotent = IDEMPOTENT_RETRY in self.header.profiles
        base, length, log = self.window.base, self.window.length, self.log
        columns = zip(conflicts.version, conflicts.latest, conflicts.attempt, strict=True)
        for row, (version, latest, attempt) in enumerate(columns):
            if -2 < latest < version:
                self._self_contradiction(conflicts, row, f"a conflict at version {version} with {latest} as the latest")
            mine = idempotent and 0 <= version - base < length and log[version - base] == attempt
            if mine and self.breaches.has_room(Rule.REPLAY_REFUSED):
                self._replay_refused(conflicts.id[row], version)
        for row, (version, latest) in enumerate(zip(gaps.version, gaps.latest, strict=True)):
            if latest >= version - 1 or version == 0:
                suffix = f" with {latest} as the latest" if latest > -2 else ""
                self._self_contradiction(gaps, row, f"a gap before version {version}{suffix}")

    def _self_contradiction(self, rows: Rows, row: int, answered: str) -> None:
        problem = f"{{first}} was answered with {answered}."
        self.breaches.add(Rule.REFUSAL_CONTRADICTS_ITSELF, rows.version[row], problem, rows.id[row])

    def _replay_refused(self, number: int, version: int) -> None:
        name = self.table.attempt_names[self._attempt_at(version)]
        problem = f"{{first}} was answered with a conflict for attempt {name}, which is version {version} itself."
        self.breaches.add(Rule.REPLAY_REFUSED, version, problem, number, self._ratified_at(version), name)

    def _check_outcomes(self) -> None:
        table = self.table
        landed, resolved = table.landed, table.not_landed
        for number, version, attempt in zip(landed.id, landed.version, landed.attempt, strict=True):
            known = self._attempt_at(version)
            if (
                known == attempt
                or version < table.base
                or (known == NO_ATTEMPT and version < table.base + table.before)
            ):
                continue
            name = table.attempt_names[attempt]
            problem = (
                f"{{first}} got the answer that attempt {name} is version {version}; it is {self._name_at(version)}."
            )
            self.breaches.add(Rule.OUTCOME_WRONG, version, problem, number, attempt=name)
        in_log = {attempt: table.base + index for index, attempt in enumerate(self.log)} if resolved else {}
        for number, attempt in zip(resolved.id, resolved.attempt, strict=True):
            if attempt in in_log and self.breaches.has_room(Rule.OUTCOME_WRONG):
                version, name = in_log[attempt], table.attempt_names[attempt]
                problem = f"{{first}} got the answer that attempt {name} never lands; it is version {version}."
                self.breaches.add(Rule.OUTCOME_WRONG, version, problem, number, self._ratified_at(version), name)

    def _gather(self) -> None:
        table = self.table
        conflicts, gaps = table.conflicts, table.gaps
        self.early_groups += [
            Observations(Early.GAP, gaps, gaps.version, -1),
            Observations(Early.READ, table.fresh, table.fresh.version, 1),
        ]
        if Promise.FRESH_REFUSALS in self.header.promises:
            self.early_groups += [
                Observations(Early.REFUSAL, conflicts, conflicts.latest, 1),
                Observations(Early.REFUSAL, gaps, gaps.latest, 1),
            ]
        self.late_groups += [
            Observations(Late.CONFLICT, conflicts, conflicts.version),
            Observations(Late.LISTED, conflicts, conflicts.latest),
            Observations(Late.LISTED, gaps, gaps.latest),
            Observations(Late.LISTED, table.fresh, table.fresh.version),
            Observations(Late.LISTED, table.stale, table.stale.version),
            Observations(Late.LISTED, table.listed, table.listed.version),
            Observations(Late.LISTED, table.landed, table.landed.version),
        ]
        if Promise.TOMBSTONE_FIRST in self.header.promises and table.not_landed:
            self._bound_by_tombstone()
        for group in self.early_groups:
            if bounds.lower(self.lower, self.window, group):
                self._from_before(group)
        for late in self.late_groups:
            if bounds.upper(self.upper, self.window, late):
                self._never_ratified(late)
        for index in range(table.before):
            self.upper[index] = -INFINITY
        for index in range(table.before, len(self.log)):
            sent = self.first_sent[index]
            if sent != INFINITY and sent > self.lower[index]:
                self.lower[index] = sent

    def _bound_by_tombstone(self) -> None:
        """An attempt resolved as not landed has a tombstone no later than the end of the first such answer; its
        conflicts and gaps come before that, whatever their own ends."""
        deadline: dict[int, int] = {}
        for attempt, answered in zip(self.table.not_landed.attempt, self.table.not_landed.answered, strict=True):
            deadline[attempt] = min(answered, deadline.get(attempt, INFINITY))
        table = self.table
        for rows, columns in (
            (table.conflicts, ("version", "latest")),
            (table.gaps, ("latest",)),
            (table.listed, ("version",)),
        ):
            buried = Rows()
            for row, attempt in enumerate(rows.attempt):
                if attempt not in deadline:
                    continue
                late = rows is not table.listed and rows.invoked[row] - self.skew > deadline[attempt]
                if late and self.breaches.has_room(Rule.TOMBSTONE_IGNORED):
                    self._after_its_tombstone(rows, row)
                end = min(deadline[attempt], rows.answered[row])
                buried.add(rows.id[row], rows.version[row], rows.invoked[row], end, attempt, rows.latest[row])
            self.late_groups += [Observations(Late.TOMBSTONE, buried, getattr(buried, name)) for name in columns]

    def _after_its_tombstone(self, rows: Rows, row: int) -> None:
        attempt = rows.attempt[row]
        resolved = self.table.not_landed
        answers = zip(resolved.attempt, resolved.answered, resolved.id, strict=True)
        end, number = min((answered, number) for other, answered, number in answers if other == attempt)
        name = self.table.attempt_names[attempt]
        problem = (
            f"{{first}} got a new answer although {{second}} got the answer by {end} that attempt {name} never lands."
        )
        self.breaches.add(Rule.TOMBSTONE_IGNORED, rows.version[row], problem, rows.id[row], number, name)

    def _from_before(self, group: Observations[Early]) -> None:
        for bound in bounds.outside(group, self.window):
            if bound.version >= 0:  # a gap before version 0 contradicts itself already
                self.breaches.contradiction(bound, Bound(Late.BEFORE, bound.version, 0, None), None)

    def _never_ratified(self, group: Observations[Late]) -> None:
        for bound in bounds.outside(group, self.window):
            rule = Rule.FALSE_CONFLICT if bound.kind is Late.CONFLICT else Rule.NEVER_RATIFIED
            what = "is taken" if bound.kind is Late.CONFLICT else "exists"
            problem = f"{{first}} got the answer that version {bound.version} {what}; {self.end_in_words()}."
            self.breaches.add(rule, bound.version, problem, bound.id)

    def _sweep(self) -> None:
        reached = -INFINITY
        skew = self.skew
        for index, (low, high) in enumerate(zip(self.lower, self.upper, strict=True)):
            if low > reached:
                reached = low
            if reached - skew > high:
                self._contradiction(index)
                reached = -INFINITY  # a later one is another contradiction, not this one again

    def _contradiction(self, index: int) -> None:
        self.contradictions += 1
        if self.contradictions > MOST_CONTRADICTIONS:
            self.breaches.unexplained += 1
            return
        late = self.late_bound(index)
        early = self.early_bound(index)
        assert late is not None and early is not None
        self.breaches.contradiction(early, late, self.attempt_name(early.version))

    def attempt_name(self, version: int) -> str | None:
        attempt = self._attempt_at(version)
        return None if attempt == NO_ATTEMPT else self.table.attempt_names[attempt]

    def early_bound(self, index: int) -> Bound[Early] | None:
        """The observation with the latest lower bound of a version or of an earlier one."""
        bound = bounds.earliest(self.early_groups, self.window, index)
        start = self.table.before
        sent = max(range(start, index + 1), key=lambda at: _finite(self.first_sent[at]), default=None)
        if sent is None or self.first_sent[sent] == INFINITY:
            return bound
        time = self.first_sent[sent]
        if bound is not None and bound.time >= time:
            return bound
        return Bound(Early.SENT, sent + self.table.base, time, self._sender(sent + self.table.base, time))

    def _sender(self, version: int, time: int) -> int | None:
        wanted = self._attempt_at(version)
        for rows in (self.table.ratified, self.table.unknown):
            columns = zip(rows.attempt, rows.version, rows.invoked, rows.id, strict=True)
            for attempt, at, invoked, number in columns:
                if attempt == wanted and invoked == time and at in (version, ANY_VERSION):
                    return number
        return None

    def late_bound(self, index: int) -> Bound[Late] | None:
        """The observation with the earliest upper bound of a version."""
        version = index + self.table.base
        if index < self.table.before:
            return Bound(Late.BEFORE, version, 0, None)
        bound = bounds.latest(self.late_groups, self.window, index)
        ratified = bounds.latest([self._ratified_in_log(version)], self.window, index)
        if ratified is not None and (bound is None or ratified.time <= bound.time):
            return ratified
        return bound

    def _ratified_in_log(self, version: int) -> Observations[Late]:
        rows, wanted, kept = self.table.ratified, self._attempt_at(version), Rows()
        columns: Sequence[array[int]] = (rows.id, rows.version, rows.invoked, rows.answered, rows.attempt)
        for number, at, invoked, answered, attempt in zip(*columns, strict=True):
            if at == version and attempt == wanted:
                kept.add(number, at, invoked, answered, attempt)
        return Observations(Late.RATIFIED, kept, kept.version)


def _finite(time: int) -> int:
    return -INFINITY if time == INFINITY else time
