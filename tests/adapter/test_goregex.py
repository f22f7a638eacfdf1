"""Go's regular expressions: what they match, what they refuse, and how names are made of their groups."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.rules.goregex import MAX_TEXT, GoRegex, GoRegexError
from adapter.rules.linear import Program


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("^container_(.*)_total$", "container_cpu_total", True),
        ("_total", "a_total_b", True),  # a search, not a full match
        ("a$", "a\n", False),  # Python's $ would take it
        ("(?m)a$", "a\nb", True),
        (".", "\n", False),
        ("(?s).", "\n", True),
        (r"\s", "\v", False),  # Go's \s has no vertical tab
        (r"[\S]", "\v", True),
        ("[^\\S]", " ", True),
        (r"\d", "٣", False),  # ASCII only
        (r"\bab\b", "x ab y", True),
        ("a(?i)B|c", "aC", True),  # a flag holds to the end of its group, alternatives too
        ("(a(?i)b)c", "aBC", False),
        ("(?i:[a-c])X", "BX", True),
        ("(?i:[a-c])X", "Bx", False),
        ("(?-i:a)b", "ab", True),
        ("[[:alpha:]_]+$", "a_b", True),
        ("[[:^digit:]]", "7", False),
        ("[]a]", "]", True),
        ("[a-]", "-", True),
        ("[a&&b~~[]", "[", True),  # no set operations
        ("^a{,3}$", "a{,3}", True),  # no repeat in Go
        ("^a{2,3}$", "aaaa", False),
        (r"^\Qa.b\E+$", "a.bbb", True),
        (r"^\Qa.b\E$", "axb", False),
        (r"^\x{61}\x62\143\n$", "abc\n", True),
        (r"\Aab\z", "ab", True),
        ("(?P<x>a)|(?<y>b)", "b", True),
        ("^(?:^a)*b", "b", True),
        ("", "", True),
        ("é", "é", True),
        (r"^\pL\pN$", "é٣", True),  # Unicode's general categories
        (r"^\p{Lu}\p{Ll}$", "Éa", True),
        (r"^\p{Lu}$", "é", False),
        (r"\p{L}", "1_ ", False),
        (r"^\PL\P{Nd}\p{^Nd}$", "1aa", True),
        (r"^[\p{Nd}_\PN]+$", "٣_a", True),
        (r"[^\pL\p{Mn}]", "é\u0301", False),
        (r"\p{Any}", "\n", True),
        (r"^\pC\p{Cn}$", "\u0378\u0378", True),  # not assigned
        (r"^\p{LC}+$", "aÉǅ", True),
        (r"\p{LC}", "ª", False),  # a letter without case
        (r"^\p{ASCII}\p{Assigned}$", "aé", True),
        (r"\p{ASCII}|\P{Assigned}", "é", False),
    ],
)
def test_patterns_match_what_they_match_in_go(pattern: str, text: str, matches: bool) -> None:
    assert (GoRegex.compile(pattern).search(text) is not None) is matches


def test_ungreedy_swaps_greedy_and_lazy() -> None:
    match = GoRegex.compile("(?U)(a+)(a+?)").search("aaa")
    assert match is not None
    assert match.groups == ("aaa", "a", "aa")


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(a", "missing closing )"),
        ("a)", "unexpected )"),
        ("[a", "missing closing ]"),
        ("[z-a]", "invalid character class range: z-a"),
        ("[[:letters:]]", "[:letters:]"),
        ("*a", "missing argument to repetition operator: *"),
        ("a|*", "missing argument to repetition operator: *"),
        ("(?i)*", "missing argument to repetition operator: *"),
        ("a**", "invalid nested repetition operator: *"),
        ("a*+", "invalid nested repetition operator: +"),  # possessive in Python
        ("a{2}{3}", "invalid nested repetition operator: {3}"),
        ("a{1001}", "invalid repeat count: {1001}"),
        ("a{3,2}", "invalid repeat count: {3,2}"),
        ("(?=a)", "no lookahead"),
        ("(?!a)", "no lookahead"),
        ("(?<=a)", "no lookbehind"),
        ("(?<!a)", "no lookbehind"),
        ("(?>a)", "no atomic groups"),
        ("(?#a)", "no comments"),
        ("(?P=a)", "no back-references"),
        (r"(a)\1", "no back-references"),
        ("(?Lx)", "(?Lx"),
        ("(?i", "(?i"),
        ("(?P<a>x)(?P<a>y)", "duplicate capture group name: a"),
        (r"\p{Greek}", r"\p{Greek} is not supported here: of Unicode's classes there are categories, such as \p{Lu}"),
        (r"[\P{^Han}]", r"\P{^Han} is not supported here"),
        (r"\p{}", r"\p{} is not supported here"),
        (r"\p{Letter}", r"\p{Letter} is not supported here"),
        (r"\p{L", r"invalid character class range: \p"),
        (r"a\p", r"invalid character class range: \p"),
        (r"[a-\pL]", r"invalid escape sequence: \p"),
        (r"\pL" * 21, "more than 20 Unicode classes"),
        (r"\C", r"\C is not supported"),
        (r"\y", r"invalid escape sequence: \y"),
        (r"\x{110000}", r"invalid escape sequence: \x"),
        ("a\\", "trailing backslash"),
        ("(" * 2000 + ")" * 2000, "nested"),
        ("((a{10}){10}){11}", "invalid repeat count: {11}"),
        ("a{900}" * 20, "too large"),
    ],
)
def test_what_go_refuses_is_refused_and_named(pattern: str, says: str) -> None:
    with pytest.raises(GoRegexError) as refused:
        GoRegex.compile(pattern)
    assert says in str(refused.value)


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
    regex = GoRegex.compile("^(?P<what>.*)_(total)$")
    match = regex.search("http_total")
    assert match is not None
    assert regex.expand(template, match) == expanded


def test_a_group_that_took_no_part_is_empty() -> None:
    regex = GoRegex.compile("(a)|(b)")
    match = regex.search("b")
    assert match is not None
    assert regex.expand("[$1][$2]", match) == "[][b]"


def test_texts_beyond_the_bound_match_nothing() -> None:
    assert GoRegex.compile("a").search("a" * (MAX_TEXT + 1)) is None


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("^([a-z]+_?)+_total$", "a" * 900 + "!"),
        ("^(a|a)*$", "a" * 900 + "!"),
        (r"^(\w+\s?)*$", "a" * 900 + "!"),
        ("(.*)_" * 5 + "x", "_" * 900),
        ("(a|a)" * 40 + "$", "a" * 900 + "!"),
        ("a?" * 40 + "!" * 2, "a" * 900 + "!"),
        ("^(a?){60}b", "a" * 60),
    ],
)
def test_a_pattern_with_countless_ways_takes_no_longer_than_its_text(pattern: str, text: str) -> None:
    started = time.process_time()
    assert GoRegex.compile(pattern).search(text) is None
    assert time.process_time() - started < 5


_CHARS = st.sampled_from(["a", "b", "[ab]", ".", "[^a]", r"\w", "(?i:B)"])
_SOLID = st.recursive(  # parts that take at least one character, so that a repeat of one means the same everywhere
    _CHARS,
    lambda part: st.one_of(
        st.builds("({})".format, part),
        st.builds("(?:{}|{})".format, part, part),
        st.builds("{}{}".format, part, part),
        st.builds("{}(?:{}){}".format, part, part, st.sampled_from(["*", "+?", "?", "??", "{0,2}", "{2,}?"])),
        st.builds("(?:{}){}".format, part, st.sampled_from(["+", "+?", "{1,3}", "{2}"])),
        st.builds("{}{}".format, st.sampled_from(["^", r"\b", r"\B"]), part),
    ),
    max_leaves=6,
)


@given(_SOLID, st.text(alphabet="abB \n", max_size=8))
def test_the_linear_match_is_the_match_of_re_groups_and_all(pattern: str, text: str) -> None:
    regex = GoRegex.compile(pattern)
    found = re.compile(pattern, re.ASCII).search(text)
    assert Program(regex.expression, groups=regex.groups).search(text) == (
        (found[0], *found.groups()) if found is not None else None
    )


@given(st.text(alphabet="ab(){}[]|*+?^$.\\-,:<>=!PQEimsUxzd019 \n", max_size=12), st.text(max_size=5))
def test_no_pattern_does_worse_than_being_refused(pattern: str, text: str) -> None:
    try:
        regex = GoRegex.compile(pattern)
    except GoRegexError:
        return
    match = regex.search(text)
    if match is not None:
        regex.expand(pattern, match)
