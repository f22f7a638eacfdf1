"""What `make mutants` says of the mutants that survive; the mutants themselves take minutes."""

from pathlib import Path

import pytest

from tools.mutants import EXPECTED, ROOT, Expected, Result, Survivor, change_of, expected_of, report

DIFF = """# kube.cache.store.xǁStoreǁ__init____mutmut_3: survived
--- kube/cache/store.py
+++ kube/cache/store.py
@@ -1,3 +1,3 @@
     self._a = 1
-    self._b = -1
+    self._b = -2
     self._c = 1
"""
CHANGE = "Store.__init__\n- self._b = -1\n+ self._b = -2"


def test_change_is_named_by_its_function_and_lines() -> None:
    assert change_of("kube.cache.store.xǁStoreǁ__init____mutmut_3", DIFF) == CHANGE
    assert change_of("kube.cache.store.x__chunks__mutmut_12", DIFF).startswith("_chunks\n")


def test_survivor_without_a_reason_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    result = Result(100, ((CHANGE, DIFF),))
    assert report(result, Expected(())) == 1
    assert DIFF in capsys.readouterr().out
    assert report(result, Expected((), (Survivor(f"{CHANGE}\n", "because"),))) == 0
    assert capsys.readouterr().out == "1 of 100 mutants survive (1.0%), 0 without a reason\n"


def test_more_than_five_percent_are_too_many() -> None:
    known = Expected((), (Survivor(CHANGE, "because"),))
    assert [report(Result(total, ((CHANGE, DIFF),)), known) for total in (20, 19)] == [0, 1]


def test_reason_for_what_does_not_survive_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Result(100, ()), Expected((), (Survivor(CHANGE, "because"),))) == 0
    assert f"a test notices this now, or it is no mutant any more:\n{CHANGE}" in capsys.readouterr().out


def test_change_whose_tests_do_not_end_is_listed_apart(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Result(100, (), (CHANGE,)), Expected(())) == 0
    out = capsys.readouterr().out
    assert f"the tests do not end in time:\n{CHANGE}\n" in out
    assert out.endswith(
        "0 of 100 mutants survive (0.0%), 0 without a reason\nthe tests of 1 more did not end in time\n"
    )


@pytest.mark.parametrize("path", sorted(EXPECTED.glob("*.yaml")), ids=lambda path: path.stem)
def test_each_file_belongs_to_a_module_with_tests(path: Path) -> None:
    expected = expected_of(f"{path.stem.replace('.', '/')}.py")
    assert (ROOT / f"{path.stem.replace('.', '/')}.py").is_file()
    assert expected.tests
    assert all((ROOT / test.partition("::")[0]).exists() for test in expected.tests)
    assert all(each.reason for each in expected.survivors)
