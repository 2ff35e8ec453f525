"""Steps of a workflow of GitHub Actions, run in bash on this machine.

Only what docs/how-to/ci.md and action.yml use: `run`, `env`, `with`, `id`, `if: always()`,
composite actions, and expressions that name an input or an output of an earlier step. Anything else
is an error, so a page that uses more is not passed by mistake.
"""

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")
_STEP_KEYS = {"env", "id", "if", "name", "run", "shell", "uses", "with"}


class Workflow:
    """The steps of one job.

    Parameters
    ----------
    folder : Path
        The checkout of the job, in which its commands run.
    actions : dict of str to Path
        The folder of each action by its name without version; None for one that does nothing here.
    environment : dict of str to str
        Variables of all steps.
    """

    def __init__(
        self, folder: Path, actions: dict[str, Path | None], environment: dict[str, str]
    ) -> None:
        self.folder = folder
        self.actions = actions
        self.printed = ""
        self._files = Path(tempfile.mkdtemp(dir=folder.parent))
        summary = str(self._files / "summary.md")
        runner = {"RUNNER_TEMP": str(self._files), "GITHUB_STEP_SUMMARY": summary}
        self._environment = {**environment, **runner}

    def run(self, steps: list[dict[str, Any]]) -> int:
        """Run the steps, and return the exit code of the first one that failed, or 0.

        After a failure only steps with `if: always()` run.
        """
        code, _ = self._run(steps, {}, {})
        return code

    def _run(
        self, steps: list[dict[str, Any]], inputs: dict[str, str], variables: dict[str, str]
    ) -> tuple[int, dict[str, str]]:
        """The exit code, and what expressions can name after the last step."""
        known = {f"inputs.{name}": value for name, value in inputs.items()}
        first_failure = 0
        for step in steps:
            _require_known(step)
            if first_failure and step.get("if") != "always()":
                continue
            if "uses" in step:
                code, outputs = self._run_action(step, known)
            else:
                code, outputs = self._run_command(step, known, variables)
            first_failure = first_failure or code
            for name, value in outputs.items():
                known[f"steps.{step.get('id')}.outputs.{name}"] = value
        return first_failure, known

    def _run_command(
        self, step: dict[str, Any], known: dict[str, str], variables: dict[str, str]
    ) -> tuple[int, dict[str, str]]:
        output = self._files / "output"
        output.write_text("")
        environment = {**self._environment, **variables, "GITHUB_OUTPUT": str(output)}
        for name, text in step.get("env", {}).items():
            environment[name] = _filled(text, known)
        # As GitHub calls bash.
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"]
        done = subprocess.run(
            [*command, _filled(step["run"], known)],
            cwd=self.folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.printed += done.stdout
        return done.returncode, _outputs(output.read_text())

    def _run_action(
        self, step: dict[str, Any], known: dict[str, str]
    ) -> tuple[int, dict[str, str]]:
        name = step["uses"].partition("@")[0]
        folder = self.actions[name]
        if folder is None:
            return 0, {}
        action = yaml.safe_load((folder / "action.yml").read_text())
        inputs = {key: spec.get("default") for key, spec in action["inputs"].items()}
        for key, value in step.get("with", {}).items():
            if key not in inputs:
                raise ValueError(f"{name} has no input {key!r}.")
            inputs[key] = _filled(str(value), known)
        missing = [key for key, value in inputs.items() if value is None]
        if missing:
            raise ValueError(f"{name} needs the input {missing[0]!r}.")
        variables = {"GITHUB_ACTION_PATH": str(folder)}
        code, inside = self._run(action["runs"]["steps"], inputs, variables)
        specs = action.get("outputs", {})
        filled = {key: _filled(spec["value"], inside) for key, spec in specs.items()}
        return code, filled


def _require_known(step: dict[str, Any]) -> None:
    unknown = set(step) - _STEP_KEYS
    if unknown:
        raise ValueError(f"a step has {sorted(unknown)[0]!r}, which is not supported here.")
    if step.get("if", "always()") != "always()":
        raise ValueError(f"a step has the condition {step['if']!r}, which is not supported here.")


def _filled(text: str, known: dict[str, str]) -> str:
    """The text with a value in place of each expression."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        # The outputs of a step that did not run are empty, as on GitHub.
        if name not in known and not re.fullmatch(r"steps\.\w+\.outputs\.\w+", name):
            raise ValueError(f"the expression {name!r} names nothing that is known.")
        return known.get(name, "")

    return _EXPRESSION.sub(value, text)


def _outputs(text: str) -> dict[str, str]:
    """What a step wrote into its file of outputs, a line for each."""
    outputs = {}
    for line in text.splitlines():
        name, found, value = line.partition("=")
        if not found:
            raise ValueError(f"an output is not NAME=VALUE: {line[:80]!r}")
        outputs[name] = value
    return outputs
