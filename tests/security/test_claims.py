"""docs/security.md and the tests agree: each claim names tests that exist, and each test here belongs to a claim."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TEXT = (ROOT / "docs" / "security.md").read_text()
CLAIM = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \| (.+) \|$", re.MULTILINE)
TEST = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
CLAIMS = CLAIM.findall(TEXT)


@cache
def functions(path: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / path).read_text())
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def test_claims_have_ids_in_order() -> None:
    ids = [claim[0] for claim in CLAIMS]
    assert len(ids) > 30
    assert len(ids) == len(set(ids))
    for letter in {each[0] for each in ids}:
        numbers = [int(each[1:]) for each in ids if each[0] == letter]
        assert numbers == list(range(1, len(numbers) + 1))


def test_each_claim_names_tests_that_exist() -> None:
    for name, _, cell in CLAIMS:
        tests = TEST.findall(cell)
        assert tests, f"{name} has no test"
        for path, function in tests:
            assert (ROOT / "tests" / path).is_file(), f"{name}: there is no tests/{path}"
            assert not function or function in functions(path), f"{name}: tests/{path} has no {function}"


def test_each_test_of_security_belongs_to_a_claim() -> None:
    named = {path for _, _, cell in CLAIMS for path, _ in TEST.findall(cell)}
    here = {f"security/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert here - named == {"security/test_claims.py"}
