"""What the GitHub Action of this repository shows and passes on; see action.yml.

    python -m divprism.integrations.github FOLDER SCORE CODE

FOLDER holds result.json and the messages of `divprism score`, which ended with the exit code CODE.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from divprism.report.documents import models_of
from divprism.report.result_files import read_result
from divprism.report.tables import evaluation_table, results_table
from divprism.report.texts import literal, visible

__all__ = ["job_outputs", "job_summary"]

_VERDICTS = {0: "Diversity", 5: "Diversity: too low"}
_FAILED = "Diversity: not scored"
_LONGEST = 500  # letters of a message


def job_summary(result: dict[str, Any] | None, message: str, code: int) -> str:
    """The table of a result as Markdown, below a heading that says whether it passed.

    Parameters
    ----------
    result : dict or None
        A result document; None if there is none.
    message : str
        What the command printed on stderr; its last line is shown if the code is not 0.
    code : int
        Exit code of the command.
    """
    parts = [f"### {_VERDICTS.get(code, _FAILED)}"]
    lines = message.strip().splitlines()
    if code and lines:
        # It may quote names from the data, which must not act as Markdown.
        parts.append(literal(visible(lines[-1])[:_LONGEST]))
    if result is not None:
        models = models_of(result)
        if len(models) == 1:
            [document] = models.values()
            table = evaluation_table(document)
        else:
            table = results_table(models)
        parts.append(table.to_markdown())
    return "\n\n".join(parts) + "\n"


def job_outputs(result: dict[str, Any], path: Path, score: str) -> dict[str, str]:
    """The outputs of the action by name, each on one line.

    `value` is the score named, the lowest of several models; empty if it was not computed.
    """
    values = []
    for document in models_of(result).values():
        if score in document["scores"]:
            values.append(float(document["scores"][score]["value"]))
    value = ""
    if values:
        value = repr(min(values))
    # JSON escapes line ends within texts, so names of models cannot add outputs.
    compact = json.dumps(result, allow_nan=False)
    return {"result": compact, "file": str(path), "value": value}


def main(arguments: list[str]) -> None:
    """Append to the files that GitHub names in the environment."""
    folder, score, code = Path(arguments[0]), arguments[1], int(arguments[2])
    path = folder / "result.json"
    result = None
    if path.exists():
        result = read_result(path)
        outputs = job_outputs(result, path, score)
        with open(os.environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as file:
            file.writelines(f"{name}={value}\n" for name, value in outputs.items())
    message = (folder / "messages").read_text(encoding="utf-8", errors="replace")
    with open(os.environ["GITHUB_STEP_SUMMARY"], "a", encoding="utf-8") as file:
        file.write(job_summary(result, message, code))


if __name__ == "__main__":
    main(sys.argv[1:])
