"""One case of any layer."""

from __future__ import annotations

import msgspec

from conformance.generated import steps
from conformance.generated.generation import Generation
from conformance.generated.rounds import REPEATS, Reproduction, Rounds
from conformance.interface.subject import Subject
from conformance.results import CaseResult, Layer
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
) -> CaseResult:
    """Run a check: an example once, a generated layer `count` times, or exactly as the `reproduction` of an earlier
    result says. Raises `AdapterError` if the subject does not speak the interface, and nothing else."""
    if check.layer is Layer.PROCESSES:
        return _rounds(check, variant, subject, seed=seed, count=count, salt=salt, reproduction=reproduction)
    if check.layer is not Layer.MODEL:
        return run_example(check, variant, subject, seed=seed, salt=salt, host=host)
    generation = Generation(check, variant, subject, seed=seed, count=count, salt=salt, shrink=shrink)
    if reproduction is not None:
        return generation.replayed(steps.decode(reproduction))
    check.function(generation)
    return generation.result()


def _rounds(
    check: Check, variant: Variant, subject: Subject, *, seed: int, count: int, salt: str, reproduction: str | None
) -> CaseResult:
    """What happened once need not happen again: a replay looks for it in several rounds."""
    if reproduction is not None:
        seed, count = msgspec.json.decode(reproduction, type=Reproduction).seed, REPEATS
    rounds = Rounds(check, variant, subject, seed=seed, count=count, salt=salt)
    check.function(rounds)
    return rounds.result()
