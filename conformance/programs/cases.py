"""Runs one case of any layer: an example, rounds of concurrent clients, or many generated programs."""

from collections.abc import Callable

import msgspec

from conformance.interface.results import CaseResult, Layer, Verdict
from conformance.interface.subject import Subject
from conformance.programs import program as programs
from conformance.programs.client_steps import ClientProgram
from conformance.programs.program import NotAProgramError
from conformance.programs.rounds import REPEATS, Reproduction, Rounds
from conformance.programs.running import MOST_VIOLATIONS, Generation
from conformance.programs.steps import OwnerProgram
from conformance.scenario.adversary import ClientHost
from conformance.scenario.check import Check, Variant
from conformance.scenario.running import run_case as run_example


def run_case(
    check: Check,
    variant: Variant,
    subject: Subject,
    *,
    seed: int = 0,
    count: int = 1,
    salt: str = "",
    reproduction: str | None = None,
    host: ClientHost | None = None,
    shrink: bool = True,
    most: int = MOST_VIOLATIONS,
    seconds: float | None = None,
    found: Callable[[CaseResult], None] | None = None,
) -> CaseResult:
    """Run a check: an example once, a generated layer `count` times, or until it shows `most` distinct violations or
    has taken `seconds`, or exactly the `reproduction` of an earlier result. `found` is called with the result so far
    after each new violation of a generated layer. If the subject's process ends by itself, the case is at best
    inconclusive, and says so. Raises only `AdapterError`, if the subject does not implement the interface."""
    deaths: list[str] = getattr(subject, "deaths", [])
    deaths.clear()
    result = _run_case(
        check, variant, subject, seed=seed, count=count, salt=salt, reproduction=reproduction, host=host, shrink=shrink,
        most=most, seconds=seconds, found=found,
    )  # fmt: skip
    if deaths and result.verdict in (Verdict.PASSED, Verdict.INCONCLUSIVE):
        return msgspec.structs.replace(result, verdict=Verdict.INCONCLUSIVE, reason=deaths[0])
    if deaths and result.verdict is Verdict.FAILED:
        return msgspec.structs.replace(result, reason=result.reason or deaths[0])
    return result


def _run_case(
    check: Check, variant: Variant, subject: Subject, *, seed: int, count: int, salt: str, reproduction: str | None,
    host: ClientHost | None, shrink: bool, most: int, seconds: float | None,
    found: Callable[[CaseResult], None] | None,
) -> CaseResult:  # fmt: skip
    if check.layer is Layer.PROCESSES:
        if reproduction is not None:  # rounds are not deterministic, so a replay runs several of them
            seed, count = msgspec.json.decode(reproduction, type=Reproduction).seed, REPEATS
        rounds = Rounds(check, variant, subject, seed=seed, count=count, salt=salt)
        check.function(rounds)
        return rounds.result()
    if check.layer is not Layer.MODEL:
        return run_example(check, variant, subject, seed=seed, salt=salt, host=host)
    generation = Generation(
        check, variant, subject, seed=seed, count=count, salt=salt, host=host, shrink=shrink, most=most,
        seconds=seconds, reproduction=reproduction, found=found,
    )  # fmt: skip
    check.function(generation)
    return generation.result()


def check_reproduction(check: Check, reproduction: str) -> None:
    """Raises `NotAProgramError` for a text that `run_case` cannot replay."""
    if check.layer is Layer.MODEL and check.side == "owner":
        programs.decode(reproduction, OwnerProgram, check.side)
    elif check.layer is Layer.MODEL:
        programs.decode(reproduction, ClientProgram, check.side)
    elif check.layer is Layer.PROCESSES:
        try:
            msgspec.json.decode(reproduction, type=Reproduction)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise NotAProgramError(f"not the seed of rounds: {error}") from error
