"""The contents of generated commits: sizes at which buffers end, and every form that JSON allows."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from conformance.models import proposals

_SCRIPTS: Final = (
    "Größe, \u0441\u0442\u043e\u043b, \u8868, \u0085, \u2028, \u2029, \U0001f3a3, e\u0301 \u00e9 \ufb01, \x7f"
)
"""Scripts, line separators, characters beyond the BMP, and two forms of one letter."""


def _info(attempt: str, time: int) -> str:
    return proposals.commit_info(attempt, time)


def _raw(kind: str, body: object) -> str:
    return json.dumps({kind: body}, ensure_ascii=False, separators=(",", ":"))


def _add(attempt: str, time: int, **more: object) -> str:
    action = json.loads(proposals.add(f"part-{attempt}.parquet", time))
    return _raw("add", {**action["add"], **more})


def _metadata(body: Mapping[str, Any], properties: Mapping[str, str], **more: object) -> str:
    configuration = {**body.get("configuration", {}), **properties}
    return _raw("metaData", {**body, "configuration": configuration, **more})


Content = Callable[[str, int, Mapping[str, Any]], tuple[str, ...]]
"""A content of an attempt with a time, for a table with that metadata."""

CONTENTS: Final[Mapping[str, Content]] = {
    "plain": lambda attempt, time, body: proposals.append(attempt, time),  # noqa: ARG005
    "info alone": lambda attempt, time, body: (_info(attempt, time),),  # noqa: ARG005
    "equal": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time), proposals.add("part-equal.parquet", proposals.BASE_TIME),
    ),
    "several": lambda attempt, time, body: (  # noqa: ARG005
        *proposals.append(attempt, time, [f"{attempt}-{number}.parquet" for number in range(4)]),
        *(proposals.remove(f"old-{number}.parquet", time) for number in range(2)),
    ),
    "scripts": lambda attempt, time, body: (_info(attempt, time), _add(attempt, time, tags={"t": _SCRIPTS})),  # noqa: ARG005
    "escaped": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time), json.dumps(json.loads(_add(attempt, time, tags={"t": _SCRIPTS + "\0\b\f\"\\/"}))),
    ),
    "lone surrogates": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time), json.dumps(json.loads(_add(attempt, time, tags={"t": "\ud83c, \udfa3"}))),
    ),
    "numbers": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time),
        _add(attempt, time, stats=json.dumps({"max": 2**63 - 1}), big=2**53 + 1, long=2**63 - 1, float=1.0),
        '{"numbers":{"digits":123456789012345678901234567890,"one":1.0,"zero":-0.0,"small":1e-7}}',
    ),
    "nothing": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time), _add(attempt, time, tags={}, none=None, list=[], text="", zero=0, no=False),
    ),
    "unknown": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time), _add(attempt, time, unknownField={"a": [1]}), _raw("unknownAction", {"id": attempt}),
    ),
    "mixed": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time),
        _add(
            attempt, time, path=f"a%2520b%253A+c%3F/part-{attempt}.parquet", tags={"t": f" {_SCRIPTS}\b\"\\ "},
            big=2**53 + 1, none=None, list=[], text="", zero=-0.0,
        ),
        _raw("unknownAction", {"id": attempt, "digits": 123456789012345678901234567890, "one": 1.0, "small": 1e-7}),
    ),
    "blanks": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time), json.dumps(json.loads(_add(attempt, time)), separators=(" , ", " : ")),
    ),
    "padded": lambda attempt, time, body: (_info(attempt, time), f"  {_add(attempt, time)}\t"),  # noqa: ARG005
    "doubled": lambda attempt, time, body: (  # noqa: ARG005
        _info(attempt, time), _add(attempt, time)[:-2] + ',"size":2}}',
    ),
    "early": lambda attempt, time, body: proposals.append(attempt, proposals.BASE_TIME - time % 1000),  # noqa: ARG005
    "late": lambda attempt, time, body: proposals.append(attempt, time + 10**12),  # noqa: ARG005
    "metadata": lambda attempt, time, body: (
        _info(attempt, time), _metadata(body, {"kit.attempt": attempt}),
    ),
    "many properties": lambda attempt, time, body: (
        _info(attempt, time), _metadata(body, {f"kit.p{number}": attempt for number in range(300)}),
    ),
    "unreadable schema": lambda attempt, time, body: (
        _info(attempt, time), _metadata(body, {}, schemaString='{"type":"struct","fields":'),
    ),
}  # fmt: skip
"""The kinds of content, the simplest first."""

ODD: Final = tuple(kind for kind in CONTENTS if kind not in ("plain", "unreadable schema"))
"""Kinds that an owner ratifies."""


def actions(
    kind: str, attempt: str, time: int, body: Mapping[str, Any], *, size: int = 0, count: int = 0
) -> tuple[str, ...]:
    """The actions of a commit. `size`: that of its file in bytes; `count`: the number of actions; 0: as they come."""
    made = CONTENTS.get(kind, CONTENTS["plain"])(attempt, time, body)
    if count > len(made):
        made += tuple(_add(f"{attempt}-{number}", time) for number in range(count - len(made)))
    if size:
        short = size - len(proposals.content(made).encode(errors="surrogatepass"))
        frame = len(_raw("add", {**json.loads(_add(attempt, time))["add"], "tags": {"x": ""}}).encode()) + 1
        if short >= frame:
            made += (_add(attempt, time, tags={"x": "x" * (short - frame)}),)
    return made
