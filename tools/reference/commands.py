"""Commands and their flags as Markdown, from click."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator, Mapping, Sequence

import click

from kube.process.flags import FlagSection
from tools.reference.markdown import prose, table


def command_sections(group: click.Group, program: str, names: Sequence[str]) -> str:
    """Return a section with usage and flags for each of these commands of a group.

    Raises:
        ValueError: the group has no command of a name.
    """
    settings = {key: value for key, value in group.context_settings.items() if key == "show_default"}
    parent = click.Context(group, info_name=program, **settings)
    sections = []
    for name in names:
        command = group.get_command(parent, name)
        if command is None:
            raise ValueError(f"{program} has no command {name!r}")
        context = click.Context(command, info_name=name, parent=parent)
        usage = " ".join([program, name, *command.collect_usage_pieces(context)])
        sections.append(
            f"## {program} {name}\n\n```text\n{usage}\n```\n\n{_description(command)}\n\n"
            + "".join(_flags(command, context))
        )
    return "".join(sections)


def ignored_table(flags: Mapping[str, str]) -> str:
    """Return the table of flags without effect, given with the reason of each; those of one reason share a row."""
    by_reason: dict[str, list[str]] = {}
    for flag, reason in flags.items():
        by_reason.setdefault(reason, []).append(f"`{flag}`")
    return table(("flags", "reason"), [(", ".join(names), prose(reason)) for reason, names in by_reason.items()])


def _description(command: click.Command) -> str:
    """Return the help text of a command; of a paragraph that is not to be wrapped, a title and a block."""
    paragraphs = []
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        if paragraph.startswith("\b\n"):
            title, _, lines = paragraph.removeprefix("\b\n").partition("\n")
            text = textwrap.dedent(lines.replace("\b", ""))
            paragraphs += [prose(title), f"```sh\n{text}\n```"]
        else:
            paragraphs.append(prose(" ".join(paragraph.split())))
    return "\n\n".join(paragraphs)


def _flags(command: click.Command, context: click.Context) -> Iterator[str]:
    """Return a table for each section of --help."""
    title = "Flags"
    rows: dict[str, list[tuple[str, str, str]]] = {}
    for parameter in command.get_params(context):
        if isinstance(parameter, FlagSection):
            title = parameter.help or title
        elif isinstance(parameter, click.Option) and not parameter.hidden and "--help" not in parameter.opts:
            rows.setdefault(title, []).append(_row(parameter, context))
    for heading, section in rows.items():
        if len(rows) > 1:
            yield f"**{heading}**\n\n"
        yield table(("flag", "default", "meaning"), section)


def _row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    names = sorted((name.strip() for name in (*option.opts, *option.secondary_opts) if name.strip()), key=len)
    flag = ", ".join(f"`{name}`" for name in names)
    if isinstance(option.type, click.Choice):
        flag += " " + ", ".join(f"`{choice}`" for choice in option.type.choices)
    elif not option.is_flag:
        flag += f" `{_metavar(option, context)}`"
    meaning, _, documented = (option.help or "").removesuffix("]").partition(" [default: ")
    default = option.get_help_extra(context).get("default", "")
    if option.required:
        default = "required"
    elif documented or default.startswith("("):  # in words
        default = prose(documented or default[1:-1])
    elif option.type.name == "bool":
        default = f"`{(default or 'false').lower()}`"
    elif default:
        default = f"`{default}`"
    meaning = prose(" ".join(meaning.split()))
    if option.multiple and "repeat" not in meaning:
        meaning += " Can be repeated."
    return flag, default, meaning


def _metavar(option: click.Option, context: click.Context) -> str:
    """Return the flag's value as --help shows it, without the words about its range."""
    metavar = option.make_metavar(context).removesuffix("...")
    limits = option.get_help_extra(context).get("range")
    return f"{metavar.removesuffix(' RANGE')} {limits}" if limits else metavar
