"""Go's regular expressions: matches, refused patterns, and names made from groups."""

from __future__ import annotations

import gc

import pytest
import re2

from adapter.rules.goregex import GoRegex, GoRegexError


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("_total", "a_total_b", True),  # a search, not a full match
        ("a$", "a\n", False),  # Python's $ would take it
        (r"\s", "\v", False),  # Go's \s has no vertical tab
        (r"\d", "٣", False),  # ASCII only
        ("a(?i)B|c", "aC", True),  # a flag holds to the end of its group, alternatives too
        ("(a(?i)b)c", "aBC", False),
        ("[[:alpha:]_]+$", "a_b", True),
        ("[a&&b~~[]", "[", True),  # no set operations
        ("^a{,3}$", "a{,3}", True),  # no repeat in Go
        (r"^\Qa.b\E+$", "a.bbb", True),
        (r"^\x{61}\x62\143\n$", "abc\n", True),
        ("(?P<x>a)|(?<y>b)", "b", True),
        (r"^\pL\pN$", "é٣", True),  # Unicode's general categories
        (r"^\PL\P{Nd}\p{^Nd}$", "1aa", True),
        (r"^\p{Greek}+$", "αβγ", True),  # and its scripts
    ],
)
def test_patterns_match_as_in_go(pattern: str, text: str, matches: bool) -> None:
    assert GoRegex(pattern).matches(text) is matches


def test_ungreedy_swaps_greedy_and_lazy() -> None:
    assert GoRegex("(?U)(a+)(a+?)").expand("$0 $1 $2", "aaa") == "aaa a aa"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("a)", "unexpected )"),
        ("[z-a]", "invalid character class range: z-a"),
        ("*a", "no argument for repetition operator: *"),
        ("a**", "bad repetition operator: **"),
        ("a*+", "bad repetition operator: *+"),  # possessive in Python
        ("a{1001}", "invalid repetition size: {1001}"),
        ("(?=a)", "invalid perl operator: (?="),
        (r"(a)\1", r"invalid escape sequence: \1"),
        (r"\p{Letter}", r"invalid character class range: \p{Letter}"),
        (r"a\C", r"invalid escape sequence: \C"),
        ("a\\", "trailing \\"),
        ("((a{100}){100}){100}", "repetition size"),
    ],
)
def test_pattern_that_go_refuses_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(GoRegexError) as refused:
        GoRegex(pattern)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("template", "expanded"),
    [
        ("${1}_per_second", "http_per_second"),
        ("$1_per_second", ""),  # the group called "1_per_second", which is none
        ("$1-$2", "http-total"),
        ("${what}$$", "http$"),
        ("$0", "http_total"),
        ("${9}x${nobody}", "x"),
        ("${99999999999999999999}", ""),
        ("${1", "${1"),
        ("a$-", "a$-"),
    ],
)
def test_groups_are_expanded_as_in_go(template: str, expanded: str) -> None:
    assert GoRegex("^(?P<what>.*)_(total)$").expand(template, "http_total") == expanded


def test_unmatched_group_expands_to_nothing() -> None:
    assert GoRegex("(a)|(b)").expand("[$1][$2]", "b") == "[][b]"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^([a-z]+_?)+_total$", "a" * 9000 + "!"),
        ("^(a|a)*$", "a" * 9000 + "!"),
        (r"^(\w+\s?)*$", "a" * 9000 + "!"),
        ("(.*)_" * 5 + "x", "_" * 9000),
        ("^(a?){60}b", "a" * 60),
    ],
)
def test_matching_takes_linear_time(pattern: str, text: str) -> None:
    assert not GoRegex(pattern).matches(text)


def test_only_the_last_patterns_stay_compiled() -> None:
    """A compiled one can take a MiB, and the rules of namespaces can have thousands."""
    kind = type(re2.compile("a"))

    def compiled() -> int:
        return sum(isinstance(one, kind) for one in gc.get_objects())

    before = compiled()
    patterns = [GoRegex(f"a{number}") for number in range(100)]
    assert all(pattern.matches(f"xa{number}") for number, pattern in enumerate(patterns))
    assert compiled() <= before + 32


def test_pattern_that_takes_long_to_compile_is_refused() -> None:
    with pytest.raises(GoRegexError, match="pattern too large"):
        GoRegex(r"\pL{200}")
