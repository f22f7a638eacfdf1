"""The adapter's /debug/config: its flags, and the rules file."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from adapter.commands.flags import ServeOptions
from adapter.rules import RulesError, strictyaml
from adapter.rules.reading import decode_rules, read_text
from kube.process.config_page import ConfigPage, Flags, given_flags, without_secrets


def flags_of(context: click.Context) -> Flags:
    """Return the flags of `serve` that are given, without secrets."""
    return given_flags(context, parse={"prometheus-auth": lambda text: strictyaml.parse(text, source="")[0]})


async def config_page(options: ServeOptions) -> ConfigPage:
    """Return the page; the rules are those in the file now, if it is valid.

    An invalid file may have secrets anywhere, such as in headers under an unknown key.
    """

    def rules() -> Any:
        source = str(options.config)
        try:
            text = read_text(options.config)
            documents = strictyaml.parse(text, source=source)
            if len(documents) != 1:
                return None
            decode_rules(documents[0], source=source, text=text, directory=options.config.parent)
        except RulesError:
            return None
        return without_secrets(documents[0])

    # A large file takes a second.
    return ConfigPage(flags=options.flags, rules=await asyncio.to_thread(rules))
