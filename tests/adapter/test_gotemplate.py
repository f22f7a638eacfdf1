"""Go's templates, as far as rules use them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

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
        pytest.param("<<range .GroupBySlice>><<end>><<.Series>>", "packets", id="the dot after range"),
        pytest.param("<<with .GroupBy>><<end>><<.Series>>", "packets", id="the dot after with"),
        pytest.param("<<range $k, $v := .LabelValuesByName>><<$k>>=<<$v>>;<<end>>", "namespace=a;pod=x|y;", id="map"),
        pytest.param("<<range .LabelValuesByName.zone>>x<<else>>none<<end>>", "none", id="range with else"),
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
        pytest.param('<<.GroupBySlice | len | printf "%d">>', "2", id="pipeline"),
        pytest.param('<<printf "%q %s %v %d %v" .Series "a" 1 42 true>>', '"packets" a 1 42 true', id="printf"),
        pytest.param(
            "<<.GroupBySlice>> <<.LabelValuesByName>>", "[namespace pod] map[namespace:a pod:x|y]", id="whole"
        ),
        pytest.param("a  <<- .Series ->>  \n b", "apacketsb", id="trim"),
        pytest.param("a<</* why */>>b <<- /* why\nnot */ ->> c", "abc", id="comments"),
        pytest.param(r"""<<"é\t\"\\\n">><<`raw\n`>>""", 'é\t"\\\nraw\\n', id="strings"),
        pytest.param("<<`a\r\n\"'\\d`>>", "a\n\"'\\d", id="raw string"),
        pytest.param("<<0>> <<-3>> <<123456789012345678>>", "0 -3 123456789012345678", id="numbers"),
        pytest.param("<<(index .GroupBySlice 0)>>", "namespace", id="parentheses"),
        pytest.param("<<\n  .Series\n>>", "packets", id="an action over several lines"),
    ],
)
def test_renders_as_go_does(source: str, text: str) -> None:
    assert render(source) == text


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("<<.Foo>>", "there is no field .Foo; there are .GroupBy,"),
        ("<<range .GroupBySlice>><<$.Foo>><<end>>", "there is no field .Foo"),
        ('<<join .GroupBySlice ",">>', 'function "join" is not supported; there are and, or,'),
        ('<<define "x">>a<<end>>', 'function "define" is not supported'),
        ("<<.Series", "there is no >> for it"),
        ("<<>>", "there is nothing in it"),
        ("<<if .Series>>a", "<<if .Series>>: there is no <<end>> for it"),
        ("a<<end>>", "<<end>>: no if, range or with is open"),
        ("<<else>>", "<<else>>: no if, range or with is open"),
        ("<<if 1>>a<<else>>b<<else>>c<<end>>", "a second else"),
        ("<<range .GroupBySlice>>a<<else if 1>>b<<end>>", "unexpected if after else"),
        ("<<$x>>", "undefined variable $x"),
        ("<<if 1>><<$x := 1>><<end>><<$x>>", "undefined variable $x"),
        ("<<$x = 1>>", "undefined variable $x"),
        ("<<if true>><<$x := 1>><<else>><<$x>><<end>>", "undefined variable $x"),
        ("<<range $x := .GroupBySlice>><<else>><<$x>><<end>>", "undefined variable $x"),
        ("<<if $a, $b := 1>><<end>>", "only range declares two variables"),
        ("<<.Series .GroupBy>>", ".Series is not a function"),
        ("<<.Series | .GroupBy>>", ".GroupBy is not a function"),
        ("<<range .GroupBySlice>><<break>><<end>>", 'function "break" is not supported'),
        ("<<not>>", "not takes 1 arguments, not 0"),
        ("<<eq 1>>", "eq takes 2 or more arguments, not 1"),
        ('<<printf "%x" 1>>', "%x in printf is not supported; there are %s, %v, %d and %q"),
        ('<<printf "%03d" 1>>', "%03d in printf is not supported"),
        ("<<(.Series>>", "a ( is not closed"),
        *(
            (f"<<{literal}>>", "there is no such string, number or sign as")
            for literal in ('"a', '"a\n"', '"a\\"', "`a", "'a'", '"\\q"', '"\\x41"', '"\\u00e9"', "/* a ")
        ),
        ('<<len "a""b">>', 'there is no space before "b"'),
        ("<<len(1)>>", "there is no space before ("),
        ('<<"a".Series>>', "unexpected .Series: what is before it has no fields"),
        *(
            (f"<<{number}>>", "there is no such string, number or sign as")
            for number in ("08", "1.5", ".5", "1e3", "0x1F", "9" * 19)
        ),
        pytest.param("<<if 1>>" * 600 + "<<end>>" * 600, "nested too deep", id="600 blocks"),
        pytest.param("<<" + "(" * 600 + "1" + ")" * 600 + ">>", "nested too deep", id="600 parentheses"),
    ],
)
def test_parse_error_names_the_action(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as refused:
        Template(source, fields=DATA)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("<<index .GroupBySlice 5>>", "index 5 is out of range: there are 2"),
        ("<<index .GroupBySlice .Series>>", "expected an integer, got a string"),
        ("<<range .Series>><<end>>", "range cannot iterate over a string"),
        ('<<eq 1 "a">>', "cannot compare an integer with a string"),
        ("<<eq .GroupBySlice .GroupBySlice>>", "cannot compare a list with a list"),
        ("<<lt true false>>", "cannot order"),
        ("<<.Series.Foo>>", "cannot evaluate field Foo in a string"),
        ("<<len 3>>", "an integer has no length"),
        ('<<printf "%d" "x">>', "expected an integer, got a string"),
        ('<<printf "%s">>', "0 arguments do not fit"),
        ('<<printf "a" 1>>', "1 arguments do not fit"),
    ],
)
def test_render_error_for_data_that_does_not_fit(source: str, message: str) -> None:
    template = Template(source, fields=DATA)
    with pytest.raises(TemplateError) as refused:
        template.render(DATA)
    assert message in str(refused.value)


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
def test_only_writes_is_true_for_printed_fields(source: str) -> None:
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
        "<<range .GroupBySlice>><<len $.LabelMatchers>><<end>>",
        "<<printf `%v` .>>",
        "<<.>>",
        "<<.LabelMatchers | printf `%s`>>",
    ],
)
def test_only_writes_is_false_for_examined_fields(source: str) -> None:
    assert not Template(source, fields=DATA).only_writes("LabelMatchers")


@pytest.mark.parametrize(
    "source",
    [
        pytest.param("<<$x := .LabelMatchers>>" + '<<$x = printf "%s%s" $x $x>>' * 40, id="doubled-text"),
        pytest.param("<<range $.GroupBySlice>>" * 40 + "x" + "<<end>>" * 40, id="nested-loops"),
        pytest.param("<<$x := printf `%s` .Series>>" + '<<$x = printf "%s%s" $x $x>>' * 16 + "<<$x>>" * 700, id="long"),
    ],
)
def test_template_that_grows_without_bounds_is_an_error(source: str) -> None:
    template = Template(source, fields=("LabelMatchers", "GroupBySlice", "Series"))
    with pytest.raises(TemplateError, match="it makes too long a text, or repeats too often"):
        template.render({"LabelMatchers": "a" * 10, "GroupBySlice": ("a", "b"), "Series": "series"})
