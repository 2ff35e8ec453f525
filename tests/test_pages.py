"""The commands on the pages: what `make pages` runs, and how it reads blocks and workflows."""

import os

import pytest

from tools.page_files import FILES
from tools.shell_blocks import NOT_RUN, ROOT, SHELLS, blocks, pages, script, shell_blocks
from tools.workflow import Workflow

# Blocks in Python run as tests, those of a tutorial with the documentation, settings in JSON by
# tests/test_onnx.py, lines of guidance by tests/test_guidance_diffusers.py. What else is not run:
NO_CODE = {
    "{include}",  # another page
    "{toctree}",
    "bibtex",
}
PRINTED = "docs/reference/real-data.md"  # blocks of `text`: what commands printed for real data


def test_every_block_is_of_a_kind_that_is_run():
    for page in pages():
        for language, _ in blocks(page.read_text()):
            name = page.relative_to(ROOT).as_posix()
            run = language in {*SHELLS, "python", "{code-cell}", "json", "yaml"}
            by_guidance = language == "text" and name == "docs/how-to/guidance.md"
            printed = language == "text" and name == PRINTED
            assert run or by_guidance or printed or language in NO_CODE, (name, language)


def test_commands_that_are_not_run_stand_on_a_page():
    commands = set()
    for page in pages():
        for block in shell_blocks(page.read_text()):
            commands.update(block)
    assert set(NOT_RUN) - commands == set()


def test_files_are_made_for_pages_that_exist():
    for page in FILES:
        assert shell_blocks((ROOT / page).read_text()), page


def test_a_block_becomes_a_script():
    page = """
```console
$ divprism demo     # a comment
what it prints
$ make test
```
```sh
divprism state a.jsonl \\
    --shard $SLURM_ARRAY_TASK_ID/16
# a comment of its own
```
"""
    first, second = shell_blocks(page)
    assert first == ["divprism demo", "make test"]
    assert script(first).splitlines()[:2] == ["set -euo pipefail", "divprism demo"]
    assert script(first).splitlines()[2].startswith("echo 'not run: make test")
    command = "divprism state a.jsonl --shard $SLURM_ARRAY_TASK_ID/16"
    assert second == [command]
    loop = f"for SLURM_ARRAY_TASK_ID in $(seq 16); do {command}; done"
    assert script(second).splitlines()[1:] == [loop]


@pytest.fixture
def workflow(tmp_path):
    """A job with an action that doubles a number, and one that does nothing."""
    action = tmp_path / "double"
    action.mkdir()
    (action / "action.yml").write_text(
        """
inputs:
  number: {description: a number}
  unused: {description: never needed, default: ""}
outputs:
  value: {value: "${{ steps.compute.outputs.value }}"}
runs:
  using: composite
  steps:
    - id: compute
      shell: bash
      env: {NUMBER: "${{ inputs.number }}"}
      run: |
        test "$NUMBER" -lt 10
        echo "value=$((2 * NUMBER))" >> "$GITHUB_OUTPUT"
"""
    )
    folder = tmp_path / "checkout"
    folder.mkdir()
    return Workflow(folder, {"me/double": action, "me/nothing": None}, dict(os.environ))


def steps(number):
    return [
        {"uses": "me/nothing@v1"},
        {"uses": "me/double@v1", "id": "double", "with": {"number": number}},
        {"run": "echo reached"},
        {
            "if": "always()",
            "run": 'echo "value $VALUE"',
            "env": {"VALUE": "${{ steps.double.outputs.value }}"},
        },
    ]


def test_steps_pass_on_their_outputs(workflow):
    assert workflow.run(steps(4)) == 0
    assert workflow.printed == "reached\nvalue 8\n"


def test_after_a_failure_only_steps_that_always_run_do(workflow):
    assert workflow.run(steps(11)) == 1
    assert workflow.printed == "value \n"


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"run": "true", "continue-on-error": True}, "'continue-on-error', which is not supported"),
        ({"run": "true", "if": "failure()"}, "the condition 'failure\\(\\)'"),
        ({"run": "echo ${{ github.ref }}"}, "'github.ref' names nothing"),
        ({"uses": "me/double@v1", "with": {"size": 1}}, "no input 'size'"),
        ({"uses": "me/double@v1"}, "needs the input 'number'"),
        ({"run": "echo value >> $GITHUB_OUTPUT"}, "not NAME=VALUE: 'value'"),
    ],
)
def test_what_a_workflow_may_not_use_is_an_error(workflow, step, message):
    with pytest.raises(ValueError, match=message):
        workflow.run([step])
