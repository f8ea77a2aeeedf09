"""Calls and replies as JSON, the same over every transport; and the messages that explain an invalid reply.

The author of an adapter, in any language, reads an `AdapterError`. So it has the request, the received text, and what
the interface expects.
"""

import difflib
import json
import re
from collections.abc import Iterable
from typing import Any, Final, TypeVar

import msgspec

from conformance.interface.messages import Answer, Call, Identity, Reply, Request, answers_to, belongs, name_of
from conformance.interface.subject import AdapterError

DIRECTORY_VARIABLE: Final = "CONFORMANCE_DIRECTORY"
"""The environment variable that names the subject's own folder, which is empty at first and survives restarts."""

LONGEST: Final = 64 * 2**20
"""The length of the longest message, in bytes."""

SHOWN: Final = 300
"""How many characters of a text an error shows."""

EXAMPLE: Final = '{"id": 7, "answer": {"outcome": "done"}}'

MISSING: Final = ". Write it even if its value is 0, false or empty (in Go, `omitempty` drops such a field)"

_T = TypeVar("_T")
_FIELD: Final = re.compile(r"unknown field `(?P<field>.*)` - at `\$(?P<path>[^`]*)`")


def encode(message: Call | Reply | Request | Answer) -> bytes:
    """One line of JSON, without the line feed."""
    try:
        text = msgspec.json.encode(message)
        # JSON permits these separators in strings, but line readers of some languages, such as Node's, end lines there.
        return text.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    except UnicodeEncodeError:  # half a character: the file ends in the middle of one
        return json.dumps(msgspec.to_builtins(message), separators=(",", ":")).encode("ascii")


def decode(text: bytes, kind: type[_T]) -> _T:
    """Raises `msgspec.DecodeError` for a text that is no JSON, `msgspec.ValidationError` for JSON that is no message of
    this kind."""
    try:
        return msgspec.json.decode(text, type=kind)
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError(f"invalid UTF-8 in {shown(repr(error.object), 40)}") from error
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError as error:
        if "surrogate" not in str(error):
            raise
        try:
            return msgspec.convert(json.loads(text), type=kind)
        except ValueError as other:
            raise msgspec.DecodeError(str(other)) from other


def shown(text: bytes | str, longest: int = SHOWN) -> str:
    """A text for an error: on one line, printable, shortened."""
    whole = text if isinstance(text, str) else text[: 4 * longest].decode("utf-8", "replace")
    size = len(text)
    cut = printable(whole[:longest])
    return f"`{cut}`" if size <= longest else f"`{cut}...` ({size:,} {'characters' if whole is text else 'bytes'})"


def printable(text: str) -> str:
    """The text on one line, with escapes."""
    return "".join(character if character.isprintable() else " " for character in text).strip()


def asked(call: Call) -> str:
    """A call in an error."""
    return f"call {call.id}, {shown(encode(call), 160)}"


def reply_of(text: bytes, where: str) -> Reply:
    """The reply that a subject sent. `where`: the sender and the channel, as the beginning of a sentence."""
    try:
        return decode(text, Reply)
    except msgspec.ValidationError as error:
        expected = _explained(error, text)
        raise AdapterError(
            f"{where} {shown(text)}, which is not a valid reply: {expected}", shown(text), expected
        ) from error
    except msgspec.DecodeError as error:
        # Say where the JSON becomes invalid only if the text was meant to be JSON.
        where_it_stops = f" ({error})" if text.lstrip()[:1] in (b"{", b"[") else ""
        if text.startswith(b"\xef\xbb\xbf"):
            where_it_stops = " (it begins with a byte order mark)"
        expected = f"a reply is one JSON object, such as {EXAMPLE}"
        raise AdapterError(
            f"{where} {shown(text)}, which is not JSON{where_it_stops}; {expected}", shown(text), expected
        ) from error


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """A reply, whatever its answer."""

    id: int
    answer: dict[str, Any]


def answered_by(text: bytes) -> int | None:
    """The id of the call that a reply belongs to, even if its answer is invalid; None if the text is no reply."""
    try:
        return decode(text, _Envelope).id
    except msgspec.DecodeError:
        return None


def meant_as_reply(text: bytes) -> bool:
    """Whether an invalid line was meant as a reply, rather than other output."""
    try:
        value: Any = json.loads(text)
    except RecursionError:
        return True
    except ValueError:
        return False
    return isinstance(value, dict) and not value.keys().isdisjoint({"id", "answer", "outcome"})


def _explained(error: msgspec.ValidationError, text: bytes) -> str:
    """The message of a schema error, with suggestions."""
    problem = str(error)
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return problem
    if not isinstance(value, dict):
        return f"{problem}. A reply is one JSON object, such as {EXAMPLE}"
    answer = value.get("answer")
    if answer is None and "outcome" in value:
        return f'{problem}. The outcome belongs in the field "answer", as in {EXAMPLE}'
    if not isinstance(answer, dict):
        return f"{problem}. A reply is {EXAMPLE}"
    outcomes = {name_of(kind): kind for kind in Answer.__args__}
    kind = outcomes.get(answer.get("outcome", ""))
    if kind is None:
        problem = _sentence(f"{problem}{near(str(answer.get('outcome', '')), outcomes)}")
        return f"{problem} The outcomes are {', '.join(outcomes)}"
    unknown = _FIELD.search(problem)
    fields = [field.name for field in msgspec.structs.fields(kind)]
    if unknown is not None and unknown["path"] == ".answer":
        problem = _sentence(f"{problem}{near(unknown['field'], fields)}")
        return f"{problem} The fields of `{name_of(kind)}` are {', '.join(fields)}"
    missing = MISSING if "missing required field" in problem else ""
    return f"{problem}{missing}. Its schema: delta-commit-conformance schema interface {kind.__name__}"


def _sentence(text: str) -> str:
    return text if text.endswith("?") else f"{text}."


def near(word: str, known: Iterable[str]) -> str:
    """Suggestions for a misspelt word, as the rest of a sentence; may be empty."""
    matches = difflib.get_close_matches(word, list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""


def checked(call: Call, answer: Answer, subject: str) -> Answer:
    """The answer, if it is a possible answer to this request. Raises `AdapterError` otherwise."""
    request = call.request
    if not belongs(request, answer):
        kinds = ", ".join(f"`{name_of(kind)}`" for kind in answers_to(type(request)))
        text = shown(encode(answer))
        expected = (
            f"The answers to `{name_of(request)}` are {kinds}. "
            f'If that answer belongs to another call, give back the "id" of the call'
        )
        raise AdapterError(f"{subject}: {asked(call)}, was answered by {text}. {expected}", text, expected)
    return answer


def identity_of(answer: Answer, subject: str) -> Identity:
    """The answer to the first `hello`."""
    if isinstance(answer, Identity):
        return answer
    raise AdapterError(
        f"{subject} answered `hello` by {shown(encode(answer))}; "
        f"it must be `identity`, with name, version, interface_version, side and profiles"
    )


def same_identity(before: Identity, answer: Answer, subject: str) -> None:
    """Raises `AdapterError` if the subject's identity changed. Only the location of its storage may differ, because
    each scenario for clients has a folder of its own."""
    now = identity_of(answer, subject)
    changed = [
        f"{field} was {shown(repr(getattr(before, field)), 100)} and is {shown(repr(getattr(now, field)), 100)}"
        for field in Identity.__struct_fields__
        if field != "storage" and getattr(before, field) != getattr(now, field)
    ]
    if changed:
        raise AdapterError(
            f"{subject}: the answer to `hello` changed between calls: {'; '.join(changed)}; it must stay the same "
            f"during a run"
        )
