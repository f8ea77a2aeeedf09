"""The course. Every stage begins with a failing check and ends with a solution, and its pages are correct. A learner's
owner that is broken in any way is described, and is not waited for twice.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from conformance.adapters.stdio import Process, StdioSubject
from conformance.command import learning
from conformance.command.application import application
from conformance.findings import stored
from conformance.interface import messages as m
from conformance.teaching import learn
from conformance.teaching.learn import STAGES
from conformance.teaching.scaffold import PROJECTS, Language, files_of
from spec_tests.conformance.teaching.learn_solutions import SOLVED, beginning, solution

PATIENCE = 120.0
"""Seconds for an answer: the machine may be busy."""


def started(language: Language) -> list[str]:
    if language is Language.JAVASCRIPT and shutil.which("node") is None:
        pytest.skip("there is no node on this machine")
    return [sys.executable if language is Language.PYTHON else "node"]


def placed(language: Language, source: str, folder: Path) -> Path:
    """The file of an owner, with the message types beside it."""
    project = PROJECTS[language]
    (folder / project.types).write_text(files_of(language)[project.types], encoding="utf-8")
    (folder / project.owner).write_text(source, encoding="utf-8")
    return folder / project.owner


def invoke(*words: object) -> Any:
    return CliRunner().invoke(application, ["learn", *map(str, words)], prog_name="delta-commit-conformance")


@pytest.fixture
def exercise(tmp_path: Path) -> Path:
    assert invoke(tmp_path / "mine").exit_code == 0
    return tmp_path / "mine"


# The stages


@pytest.mark.parametrize("language", SOLVED)
def test_a_new_owner_is_the_solution_without_its_stages(language: Language) -> None:
    assert beginning(language).read_text(encoding="utf-8") == solution(language, 0)


def of_every_stage() -> list[Any]:
    """Every third stage in Python, the first and the last in JavaScript. The others are marked `longer`."""
    usual = {Language.PYTHON: (*range(0, 13, 3), 13), Language.JAVASCRIPT: (0, 13)}
    return [
        pytest.param(language, stage, marks=() if stage in usual[language] else pytest.mark.longer)
        for language in SOLVED
        for stage in range(len(STAGES) + 1)
    ]


@pytest.mark.parametrize(("language", "stage"), of_every_stage())
def test_a_solution_passes_its_stages_and_not_the_next(language: Language, stage: int, tmp_path: Path) -> None:
    file = placed(language, solution(language, stage), tmp_path)
    result = learn.judge([*started(language), str(file)], timeout=PATIENCE)
    assert result.passed == stage, result.failure
    if stage == len(STAGES):
        assert result.failure is None
    else:
        assert result.failure is not None
        assert (result.failure.stage.number, result.failure.broken) == (stage + 1, False)


def test_the_checks_of_the_stages_exist_and_are_used_once() -> None:
    used = [name for stage in STAGES for name in stage.checks]
    assert set(used) <= learn.judges().keys()
    assert len(set(used)) == len(used)
    assert [stage.number for stage in STAGES] == list(range(1, 14))


@pytest.mark.engines
@pytest.mark.parametrize("language", SOLVED)
def test_the_complete_solution_passes_the_quick_profile(language: Language, tmp_path: Path) -> None:
    file = placed(language, solution(language, len(STAGES)), tmp_path)
    subject = f"stdio:{' '.join(started(language))} {file}"
    words = [
        sys.executable,
        "-m",
        "conformance",
        "run",
        subject,
        "--profile",
        "quick",
        "--json",
        "--timeout",
        "60s",
        "--budget",
        "1h",
    ]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert {"staged", "idempotent-retry"} <= set(json.loads(done.stdout)["subject"]["profiles"])


# The pages


def test_every_stage_has_a_page_with_two_hints() -> None:
    texts = learn.pages(Language.PYTHON, "mine")
    for stage in STAGES:
        text = texts[stage.page]
        assert text.startswith(f"# Stage {stage.number}: {stage.title}\n")
        assert "## Hint" not in text
        assert learn.hint(stage)
        assert learn.hint(stage, deeper=True)
        for profile in stage.profiles[-2:] if stage.number > 1 else ():
            assert f"`{profile}`" in text
    assert not re.search(r"\{[A-Z]+\}", "".join(texts.values()))


def conversation(language: Language) -> list[tuple[str, m.Call, str]]:
    """The examples of all pages: one conversation, in the order of the pages."""
    examples = []
    for name, text in sorted(learn.pages(language, "mine").items()):
        for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL) if name != "README.md" else ():
            lines = block.splitlines()
            for call, reply in zip(lines[::2], lines[1::2], strict=True):
                examples.append((name, msgspec.json.decode(call, type=m.Call), reply))
    return examples


@pytest.mark.parametrize("language", SOLVED)
def test_the_examples_on_the_pages_equal_the_solutions_answers(language: Language, tmp_path: Path) -> None:
    file = placed(language, solution(language, len(STAGES)), tmp_path)
    examples = conversation(language)
    assert [call.id for _, call, _ in examples] == list(range(1, len(examples) + 1))
    with StdioSubject([*started(language), str(file)], timeout=PATIENCE, directory=tmp_path / "home") as subject:
        storage = str(subject.identity.storage)
        for name, call, reply in examples:
            request = msgspec.json.encode(call.request).decode().replace("/storage", storage)
            answer = subject.ask(call.client, msgspec.json.decode(request, type=m.Request))
            assert answer == msgspec.json.decode(reply, type=m.Reply).answer, (name, call.id)


def test_the_commands_on_the_pages_exist() -> None:
    known = {command.name for command in application.registered_commands}
    pages = "".join(learn.pages(Language.PYTHON, "mine").values())
    assert set(re.findall(r"delta-commit-conformance ([a-z]+)", pages)) <= known
    for words in re.findall(r"delta-commit-conformance learn mine (\w+)", pages):
        assert words in list(learning.Action)


def test_the_findings_on_the_last_page_exist() -> None:
    named = re.findall(r"\| `([\w-]+)` \|$", learn.pages(Language.PYTHON, "mine")[learn.LAST_PAGE], re.MULTILINE)
    assert len(named) > 5
    assert set(named) <= {finding.id for finding in stored.findings()}


# The exercise folder


def test_a_new_exercise_is_a_project_and_all_pages(exercise: Path) -> None:
    names = {path.name for path in exercise.iterdir()}
    assert names == {"exercise.json", *files_of(Language.PYTHON), *learn.pages(Language.PYTHON, "")}
    assert len(learn.pages(Language.PYTHON, "")) == 15


def test_a_learners_work_is_not_overwritten(exercise: Path) -> None:
    (exercise / "owner.py").write_text("my work", encoding="utf-8")
    again = invoke(exercise)
    assert again.exit_code == 2
    assert "is already an exercise" in again.stderr
    assert (exercise / "owner.py").read_text(encoding="utf-8") == "my work"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["{new}", "check"], "is not an exercise: it has no exercise.json"),
        (["{full}", "check"], "is not an exercise: it has no exercise.json; to create one in a new folder"),
        (["{mine}", "chekc"], "unknown action 'chekc'; expected check, hint"),
        (["{file}"], "is not a folder; expected a new or an empty folder"),
        (["{full}"], "is not empty"),
        (["{new}", "--language", "cobol"], "unknown --language 'cobol'; expected python, javascript, rust, go, java"),
        (["{mine}", "check", "--stage", "14"], "invalid --stage 14; expected 1 to 13"),
        (["{mine}", "check", "--stage", "0"], "invalid --stage 0; expected 1 to 13"),
        (["{mine}", "check", "--deeper"], "--deeper works only with the action hint"),
        (["{mine}", "check", "--language", "python"], "--language is only for a new folder"),
        (["{mine}", "check", "--timeout", "soon"], "invalid --timeout 'soon'"),
        (["{broken}", "check"], "invalid {broken}/exercise.json"),
        (["{empty}", "check"], "owner.py is missing"),
        (["{js}", "check"], "node was not found on the PATH"),
        (["{new}", "--language", "rust"], "cargo was not found on the PATH; install Rust 1.80 or newer"),
    ],
)
def test_invalid_calls_give_a_message_and_exit_code_2(
    words: list[str], problem: str, exercise: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = {name: tmp_path / name for name in ("new", "file", "full", "broken", "empty", "js")} | {"mine": exercise}
    places["file"].write_text("", encoding="utf-8")
    for name, marker in (("full", ""), ("broken", '{"language": 3}'), ("empty", '{"language": "python"}'),
                         ("js", '{"language": "javascript"}')):  # fmt: skip
        places[name].mkdir()
        (places[name] / ("exercise.json" if marker else "thesis.txt")).write_text(marker, encoding="utf-8")
    monkeypatch.setenv("PATH", str(tmp_path))
    done = invoke(*(word.format(**places) for word in words))
    assert (done.exit_code, done.stdout, places["new"].exists()) == (2, "", False)
    assert problem.format(**places) in done.stderr


def test_a_check_inside_the_exercise_says_how_to_name_it(exercise: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(exercise)
    done = invoke("mine", "check")
    assert (done.exit_code, "the current folder is one: name it `.`" in done.stderr) == (2, True)


def test_a_hint_is_for_the_current_stage_and_the_deeper_one_has_code(exercise: Path) -> None:
    shown = invoke(exercise, "hint", "--timeout", "120s")
    assert (shown.exit_code, shown.stdout.splitlines()[0]) == (0, "Stage 1, create version 0")
    assert "hint --deeper" in shown.stdout
    deeper = invoke(exercise, "hint", "--deeper", "--stage", 3)
    assert deeper.stdout.startswith("Stage 3, lose a race properly")
    assert "return gap" in deeper.stdout


# The output of a check


def test_a_check_shows_the_first_failure_and_its_page(exercise: Path) -> None:
    (exercise / "owner.py").write_text(solution(Language.PYTHON, 2), encoding="utf-8")
    shown = invoke(exercise, "check", "--timeout", "120s")
    assert shown.exit_code == 1
    for fact in (
        "Stage 3, lose a race properly: not yet", "observed: `commit` of version 1 was answered `rejected`",
        "expected: version 1 is taken", '-> {"outcome": "rejected"', f"read {exercise}/03-lost-race.md",
        "2 of 13 stages ##-----------",
    ):  # fmt: skip
        assert fact in shown.stdout, shown.stdout
    assert max(map(len, shown.stdout.replace(str(exercise), "mine").splitlines())) <= 79


def test_an_owner_that_does_not_start_is_shown_with_its_error(tmp_path: Path) -> None:
    started(Language.JAVASCRIPT)
    assert invoke(tmp_path / "mine", "--language", "javascript").exit_code == 0
    (tmp_path / "mine/owner.mjs").write_text("const one = 1;\nnot a program\n", encoding="utf-8")
    shown = invoke(tmp_path / "mine", "check", "--timeout", "120s")
    assert shown.exit_code == 2
    assert shown.stdout.startswith("The owner does not answer `hello`\n")
    assert "owner.mjs:2|notaprogram|SyntaxError" in re.sub(r"\s", "", shown.stdout)
    assert f"read {tmp_path}/mine/README.md" in shown.stdout


LOOP = (
    'import json, sys\nfor line in sys.stdin:\n    call = json.loads(line)\n    if call["request"]["op"] == "hello":\n'
)
HELLO = learn.pages(Language.PYTHON, "")["README.md"].split("```json\n")[1].splitlines()[1]
GREETS = f"{LOOP}        print({HELLO!r}, flush=True)\n    else:\n"


@pytest.mark.parametrize(
    ("source", "headline", "broken"),
    [
        ("def broken(:\n", "SyntaxError", True),
        ("import time\nprint('thinking', flush=True)\ntime.sleep(60)\n", "which is not JSON", True),
        ("import time\ntime.sleep(60)\n", "no answer within 0.5 s", True),
        ("while True: print('x' * 1000)\n", "which is not JSON", True),
        (f"{GREETS}        raise RuntimeError('my mistake')\n", "my mistake", False),
        (f"{GREETS}        sys.exit(7)\n", "exit code 7", False),
        (f"{GREETS}        sys.stdin.readline()\n        sys.stdin.readline()\n", "no answer within 0.5 s", False),
        (f"{GREETS}        print(json.dumps({{'id': call['id'], 'answer': {{'outcome': 'maybe'}}}}), flush=True)\n",
         "maybe", True),
    ],
    ids=("syntax", "prints", "hangs", "floods", "raises", "exits", "silent", "outcome"),
)  # fmt: skip
def test_a_broken_owner_is_described_and_not_waited_for_twice(
    source: str, headline: str, broken: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check waits for the owner's start, and once for a missing answer."""
    file = tmp_path / "owner.py"
    file.write_text(source, encoding="utf-8")
    slow, original = "no answer" in headline, Process.ask
    silences = list[m.Request]()

    def ask(process: Process, client: str, request: m.Request, timeout: float) -> m.Answer:
        starts = isinstance(request, m.Hello) and not broken
        answer = original(process, client, request, 0.5 if slow and not starts else timeout)
        if isinstance(answer, m.Unknown) and "no answer" in answer.reason:
            silences.append(request)
        return answer

    monkeypatch.setattr(Process, "ask", ask)
    result = learn.judge([sys.executable, str(file)], timeout=PATIENCE)
    assert result.failure is not None
    assert headline in result.failure.headline
    assert result.failure.expected not in result.failure.headline
    assert (result.passed, result.failure.broken) == (0, broken)
    assert ("--timeout" in result.failure.expected) == (slow and not broken)
    assert len(silences) == slow
