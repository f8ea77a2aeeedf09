"""The command `new`: an adapter's project in one of five languages."""

from pathlib import Path
from shlex import quote
from typing import Annotated

from conformance.command.output import PROGRAM, JsonOption, argument, option, show, show_json


def new(
    directory: Annotated[Path, argument("FOLDER", "new folder", show_default=False)],
    language: Annotated[
        str, option("--language NAME", "python, javascript, rust, go or java (required)", show_default=False)
    ],
    json: JsonOption = False,
) -> None:
    """Create the project of a new commit owner, in any of five languages: a complete adapter without the owner.

    The program reads calls and writes replies (a line of JSON each), and has the types of all messages. It answers
    `hello`, and shows the kit the log of a table. Every other operation is answered `unsupported`, with the section of
    the page TEST_YOUR_OWNER.md that describes it.

    Exit code 0: created; 2: usage error, a folder that is not empty, or a missing toolchain; nothing is written then.
    """
    from conformance.teaching import scaffold

    chosen = scaffold.language_named(language)
    scaffold.require_tools(chosen)
    files, project = scaffold.files_of(chosen), scaffold.PROJECTS[chosen]
    scaffold.write(directory, files)
    subject = f"stdio:{project.program}"
    if json:
        show_json({
            "folder": str(directory), "language": chosen, "files": sorted(files), "owner": project.owner,
            "build": project.build, "subject": subject,
        })  # fmt: skip
        return
    show(f"{directory}: {project.owner} is your owner; README.md says how to go on. Next:")
    steps = [f"cd {quote(str(directory))}", project.build, f'{PROGRAM} smoke "{subject}"']
    for step in (*filter(None, steps), f'{PROGRAM} run "{subject}" --report report'):
        show(f"  {step}")
