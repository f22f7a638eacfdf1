"""Go's templates, as far as rules use them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapter.gotemplate import Template, TemplateError, Value

DATA: Mapping[str, Value] = {
    "Series": "packets",
    "LabelMatchers": 'namespace="a",pod=~"x|y"',
    "LabelValuesByName": {"namespace": "a", "pod": "x|y"},
    "GroupBy": "namespace,pod",
    "GroupBySlice": ("namespace", "pod"),
}


def render(source: str) -> str:
    return Template(source, fields=DATA).render(DATA)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param("sum(up)", "sum(up)", id="text alone"),
        pytest.param("sum(<<.Series>>{<<.LabelMatchers>>})", 'sum(packets{namespace="a",pod=~"x|y"})', id="fields"),
        pytest.param('<<index .LabelValuesByName "pod">>', "x|y", id="index of a map"),
        pytest.param('<<index .LabelValuesByName "zone">>.', ".", id="index of what a map lacks"),
        pytest.param("<<index .GroupBySlice 1>>", "pod", id="index of a list"),
        pytest.param("<<.LabelValuesByName.namespace>>", "a", id="field of a map"),
        pytest.param("<<.LabelValuesByName.zone>>", "<no value>", id="field that a map lacks"),
        pytest.param("<<range $i, $v := .GroupBySlice>><<if $i>>,<<end>><<$v>><<end>>", "namespace,pod", id="join"),
        pytest.param("<<range .GroupBySlice>>[<<.>>]<<end>>", "[namespace][pod]", id="range sets the dot"),
        pytest.param("<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>>;<<end>>", "namespace=a;pod=x|y;", id="map"),
        pytest.param("<<range slice .GroupBySlice 0 0>>x<<else>>none<<end>>", "none", id="range with else"),
        pytest.param('<<range .GroupBySlice>><<if eq . "pod">><<break>><<end>><<.>><<end>>', "namespace", id="break"),
        pytest.param('<<range .GroupBySlice>><<if ne . "pod">><<continue>><<end>><<.>><<end>>', "pod", id="continue"),
        pytest.param('<<if eq .Series "a" "packets">>yes<<else>>no<<end>>', "yes", id="eq of several"),
        pytest.param("<<if eq 1 2>>a<<else if lt 1 2>>b<<else>>c<<end>>", "b", id="else if"),
        pytest.param(
            "<<with .Series>><<.>> of <<$.GroupBy>><<else>>none<<end>>", "packets of namespace,pod", id="with"
        ),
        pytest.param('<<with "">>x<<else>><<.Series>><<end>>', "packets", id="with of nothing keeps the dot"),
        pytest.param("<<$x := 1>><<range .GroupBySlice>><<$x = .>><<end>><<$x>>", "pod", id="assignment"),
        pytest.param("<<if $n := len .GroupBySlice>><<$n>><<end>>", "2", id="variable of an if"),
        pytest.param("<<and 1 .Series>> <<or 0 .Series>> <<not .Series>>", "packets packets false", id="logic"),
        pytest.param("<<or .Series (index .GroupBySlice 9)>>", "packets", id="or stops when it can"),
        pytest.param('<<le 1 1>><<gt "b" "a">><<ge 1 2>><<ne 1 2>>', "truetruefalsetrue", id="order"),
        pytest.param('<<.GroupBySlice | len | printf "%03d">>', "002", id="pipeline"),
        pytest.param(
            '<<printf "%q %s %v %5d|%-4s|%.2f %t %%" .Series "a" 1 42 "b" 1.5 true>>',
            '"packets" a 1    42|b   |1.50 true %',
            id="printf",
        ),
        pytest.param('<<print 1 2 "x" 3>><<println "a" 1>>', "1 2x3a 1\n", id="print"),
        pytest.param("<<slice .Series 1 3>>", "ac", id="slice of a string"),
        pytest.param(
            "<<.GroupBySlice>> <<.LabelValuesByName>>", "[namespace pod] map[namespace:a pod:x|y]", id="whole"
        ),
        pytest.param("a  <<- .Series ->>  \n b", "apacketsb", id="trim"),
        pytest.param("a<</* why */>>b <<- /* why\nnot */ ->> c", "abc", id="comments"),
        pytest.param('<<"\\u00e9\\x41\\101\\n">><<`raw\\n`>>', "éAA\nraw\\n", id="strings"),
        pytest.param('<<"\\a\\b\\f\\r\\t\\v\\\\\\"">>', '\a\b\f\r\t\v\\"', id="escapes of one letter"),
        pytest.param('<<"\\xc3\\xa9\\303\\251 \\U0001F600">>', "éé \U0001f600", id="escapes of bytes"),
        pytest.param('<<"a\\xff\\377b">>', "a\ufffd\ufffdb", id="bytes that are no UTF-8"),
        pytest.param("<<`a\r\n\"'\\ud800`>>", "a\n\"'\\ud800", id="raw string"),
        pytest.param("<<'a'>> <<'é'>> <<'\\''>> <<'\"'>> <<'\\n'>>", "97 233 39 34 10", id="characters"),
        pytest.param("<<'\\xff'>> <<'\\377'>> <<'\\u00e9'>>", "255 255 233", id="characters by number"),
        pytest.param("<<1e3>> <<0x1F>> <<-3>> <<1.50>> <<1e30>> <<1e-7>>", "1000 31 -3 1.5 1e+30 1e-07", id="numbers"),
        pytest.param("<<017>> <<-0_17>> <<0o17>> <<1_000>> <<0>>", "15 -15 15 1000 0", id="octal numbers"),
        pytest.param("<<(index .GroupBySlice 0)>>", "namespace", id="parentheses"),
        pytest.param("<<\n  .Series\n>>", "packets", id="an action over several lines"),
    ],
)
def test_renders_as_go_does(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("<<.Foo>>", "there is no field .Foo; there are .GroupBy,"),
        ("<<range .GroupBySlice>><<$.Foo>><<end>>", "there is no field .Foo"),
        ('<<join .GroupBySlice ",">>', 'function "join" is not defined; there are and, or,'),
        ('<<define "x">>a<<end>>', "nested templates are not supported"),
        ('<<template "x">>', "nested templates are not supported"),
        ("<<html .Series>>", "html is not supported"),
        ("<<.Series", "there is no >> for it"),
        ("<<>>", "there is nothing in it"),
        ("<<if .Series>>a", "<<if .Series>>: there is no <<end>> for it"),
        ("a<<end>>", "<<end>>: there is nothing open"),
        ("<<else>>", "<<else>>: there is nothing open"),
        ("<<if 1>>a<<else>>b<<else>>c<<end>>", "a second else"),
        ("<<range .GroupBySlice>>a<<else if 1>>b<<end>>", "unexpected if after else"),
        ("<<break>>", "there is no range to break"),
        ("<<$x>>", "undefined variable $x"),
        ("<<if 1>><<$x := 1>><<end>><<$x>>", "undefined variable $x"),
        ("<<$x = 1>>", "undefined variable $x"),
        ("<<if $a, $b := 1>><<end>>", "only range declares two variables"),
        ("<<.Series .GroupBy>>", ".Series is not a function"),
        ("<<.Series | .GroupBy>>", ".GroupBy is not a function"),
        ("<<nil>>", "nil is not a command"),
        ("<<not>>", "not takes 1 arguments, not 0"),
        ("<<eq 1>>", "eq takes 2 or more arguments, not 1"),
        ('<<printf "%x" 1>>', "%d, %f, %g, %t, not %x"),
        ('<<printf "%9999d" 1>>', "no wider than"),
        ("<<(.Series>>", "a ( is not closed"),
        ('<<"a>>', '<<"a>>: unterminated quoted string'),
        ('<<"a\n">>', "unterminated quoted string"),
        ('<<"a\\">>', "unterminated quoted string"),
        ("<<`a>>", "unterminated raw quoted string"),
        ("<<'a>>", "unterminated character constant"),
        ('<<"\\q">>', r'"\q" has an unknown escape: \q'),
        ('<<"\\\'">>', "has an unknown escape: \\'"),
        ('<<"\\x4">>', "has an unknown escape: \\x"),
        ('<<"\\u00e">>', "has an unknown escape: \\u"),
        ('<<"\\08">>', "has an unknown escape: \\0"),
        ('<<"\\400">>', "has an unknown escape: \\4"),
        ('<<"\\ud800">>', r'"\ud800": \ud800 is no character'),
        ('<<"\\ud83d\\ude00">>', r"\ud83d is no character"),
        ('<<"\\U00110000">>', r"\U00110000 is no character"),
        ("<<''>>", "malformed character constant: ''"),
        ("<<'ab'>>", "malformed character constant: 'ab'"),
        ("<<'\\\"'>>", 'has an unknown escape: \\"'),
        ("<<'\\ud800'>>", "is no character"),
        ('<<print "a""b">>', 'there is no space before "b"'),
        ("<<print'a'>>", "there is no space before 'a'"),
        ("<<print(1)>>", "there is no space before ("),
        ('<<"a".Series>>', "unexpected .Series: what is before it has no fields"),
        ("<<08>>", "bad number syntax: 08"),
        ("<<9223372036854775808>>", "the number is too large"),
        ("<<1e999>>", "the number is too large"),
        ("<<1.2.3>>", "bad number syntax: 1.2.3"),
        ("<</* a >>", "a comment ends with */>>"),
        ("<<if 1>>" * 60 + "<<end>>" * 60, "nested more than 50 deep"),
        ("<<" + "(" * 60 + "1" + ")" * 60 + ">>", "nested more than 50 deep"),
    ],
)
def test_mistakes_are_found_when_a_template_is_read(source: str, says: str) -> None:
    with pytest.raises(TemplateError) as refused:
        Template(source, fields=DATA)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("<<index .GroupBySlice 5>>", "index 5 is out of range: there are 2"),
        ("<<index .GroupBySlice .Series>>", "an index is an integer, not a string"),
        ("<<range .Series>><<end>>", "range cannot iterate over a string"),
        ('<<eq 1 "a">>', "cannot compare an integer with a string"),
        ("<<eq .GroupBySlice .GroupBySlice>>", "cannot compare a list with a list"),
        ("<<lt true false>>", "cannot order"),
        ("<<.Series.Foo>>", "cannot evaluate field Foo in a string"),
        ("<<len 3>>", "an integer has no length"),
        ("<<slice .Series 4 2>>", "slice 4:2 is out of range"),
        ('<<printf "%d" "x">>', "an index is an integer, not a string"),
        ('<<printf "%s">>', "nothing is left for %s"),
        ('<<printf "a" 1>>', "more arguments than verbs"),
    ],
)
def test_what_only_the_data_can_show_is_found_when_it_is_filled_in(source: str, says: str) -> None:
    template = Template(source, fields=DATA)
    with pytest.raises(TemplateError) as refused:
        template.render(DATA)
    assert says in str(refused.value)


def test_an_absurdly_long_text_is_refused() -> None:
    template = Template("<<range $.Many>>" * 3 + "x" * 200 + "<<end>>" * 3, fields=["Many"])
    with pytest.raises(TemplateError, match="longer than"):
        template.render({"Many": ["a"] * 40})


WRITTEN_ESCAPES = r"""\a \\ \" \' \x \x4 \xff \x80 \0 \101 \400 \u \u00e9 \ud800 \udfff \U0001f600 \U00110000 \q \ """
ESCAPES = st.sampled_from(WRITTEN_ESCAPES.split())
LETTERS = st.sampled_from(["a", "é", "\U0001f600", "'", '"', "`", "\r", "0"])


def valid_in_go(body: str, quote: str) -> bool:
    """Whether Go takes this between two quotes, by its specification of string and rune literals."""
    code_point = r"u(?!d[89a-f])[0-9a-f]{4}|U(?!0000d[89a-f])00(?:0.|10)[0-9a-f]{4}"
    escape = rf"\\(?:[abfnrtv\\{quote}]|[0-3][0-7]{{2}}|x[0-9a-f]{{2}}|{code_point})"
    one = rf"(?:[^\\\n{quote}]|{escape})"
    return re.fullmatch(one if quote == "'" else f"{one}*", body) is not None


@given(st.lists(ESCAPES | LETTERS, max_size=5).map("".join), st.sampled_from("\"'"))
def test_of_any_literal_comes_a_text_or_an_error_as_in_go(body: str, quote: str) -> None:
    try:
        text = render(f"<<{quote}{body}{quote}>>")
    except TemplateError:
        assert not valid_in_go(body, quote)
    else:
        assert valid_in_go(body, quote)
        text.encode()


WORDS = """<< >> <<- ->> if else end range with break $x := = .Series .LabelValuesByName .GroupBySlice . $ $v , | ( )
index eq printf len slice "a" "%d" `b` 'c' "\\ud800" "\\xff" ' " ` 1 -2 3.5 nil true not and or /* */ text"""
PIECES = st.sampled_from(WORDS.split())


@given(st.lists(PIECES, max_size=14).map(" ".join) | st.lists(PIECES, max_size=14).map("".join))
def test_no_text_does_worse_than_being_refused(source: str) -> None:
    with contextlib.suppress(TemplateError):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "a",
        "<<.LabelMatchers>>",
        "<<$.LabelMatchers>> and <<- .LabelMatchers ->>",
        "<<if eq .Series `a`>><<.LabelMatchers>><<else>><<$.LabelMatchers>><<end>>",
        "<<range .GroupBySlice>><<.>><<$.LabelMatchers>><<else>><<.LabelMatchers>><<end>>",
        "<<with .Series>><<.>><<end>>",
        "<<if .LabelValuesByName.pod>>a<<end>>",
    ],
)
def test_a_field_that_is_only_written(source: str) -> None:
    assert Template(source, fields=DATA).only_writes("LabelMatchers")


@pytest.mark.parametrize(
    "source",
    [
        "<<if .LabelMatchers>>a<<end>>",
        "<<if eq .Series `a`>>a<<else if eq $.LabelMatchers `b`>>b<<end>>",
        "<<if .Series>>a<<else>><<len .LabelMatchers>><<end>>",
        "<<with .LabelMatchers>>a<<end>>",
        "<<$x := .LabelMatchers>>",
        "<<with $x := .>>a<<end>>",
        "<<with .Series>><<if $>>a<<end>><<end>>",
        "<<range .GroupBySlice>><<slice $.LabelMatchers 1>><<end>>",
        "<<printf `%v` .>>",
        "<<.>>",
        "<<.LabelMatchers | print>>",
    ],
)
def test_a_field_that_decides_something(source: str) -> None:
    assert not Template(source, fields=DATA).only_writes("LabelMatchers")
