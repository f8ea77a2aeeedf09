"""The reference solution of every stage, generated from one source for each language.

In `owner.py.stages` and `owner.mjs.stages`, a block from `>>> stage 5` to `<<<` is in the solutions from stage 5 on. A
block from `>>> until 5` is in the solutions before stage 5, and `>>> stage 5 until 7` combines both. Blocks can be
nested. The solution of stage 0 is the owner of a new project.

    python -m spec_tests.conformance.teaching.learn_solutions                # writes the owners of new projects
    python -m spec_tests.conformance.teaching.learn_solutions javascript 7   # prints a solution
"""

import re
import sys
from pathlib import Path

from conformance.teaching.scaffold import HERE, PROJECTS, Language

BEGIN = re.compile(r"\s*(?://|#) >>>(?: stage (\d+))?(?: until (\d+))?\n")
END = re.compile(r"\s*(?://|#) <<<\n")
SOLVED = (Language.PYTHON, Language.JAVASCRIPT)
"""The languages with solutions."""


def beginning(language: Language) -> Path:
    """The file with the owner of a new project."""
    return HERE / language / f"{PROJECTS[language].owner}.txt"


def solution(language: Language, stage: int) -> str:
    """The owner at the end of a stage."""
    source = Path(__file__).with_name(f"{PROJECTS[language].owner}.stages").read_text(encoding="utf-8")
    kept, shown = [], [True]
    for line in source.splitlines(keepends=True):
        begin = BEGIN.fullmatch(line)
        if begin:
            first, end = int(begin[1] or 0), int(begin[2] or sys.maxsize)
            shown.append(shown[-1] and first <= stage < end)
        elif END.fullmatch(line):
            shown.pop()
        elif shown[-1]:
            kept.append(line)
    assert shown == [True], f"unbalanced blocks in the solution for {language}"
    return "".join(kept)


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.stdout.write(solution(Language(sys.argv[1]), int(sys.argv[2])))
    else:
        for language in SOLVED:
            beginning(language).write_text(solution(language, 0), encoding="utf-8")
