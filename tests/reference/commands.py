"""The commands: a page, manual pages in section 1, and completion for shells."""

from collections.abc import Iterator
from typing import Final

import attrs
import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

from router.cli.main import main
from tests.reference.text import code, page, table

PROGRAM: Final = "router"
HELP: Final = "Show this message and exit."


@attrs.frozen
class Entry:
    """A command.

    Attributes:
        name: the words that call it, the program's included.
        command: it.
        usage: its arguments, as in a line of usage.
    """

    name: str
    command: click.Command
    usage: str

    @property
    def options(self) -> list[tuple[str, str]]:
        """How each option is written, and what it does.

        A command keeps the help option of the context that asked for it first, which in a test
        may be one without the program's.
        """
        context = _context(self.name, self.command)
        asks = click.Option(context.help_option_names, is_flag=True, help=HELP)
        records = [each.get_help_record(context) for each in (*self.command.params, asks)]
        return [record for record in records if record is not None and record[1]]

    @property
    def text(self) -> list[str]:
        """The paragraphs of its help."""
        paragraphs = (self.command.help or "").replace("\b", "").split("\n\n")
        return [" ".join(each.split()) for each in paragraphs if each.strip()]


def entries() -> list[Entry]:
    """Returns the program and every command, each group before its commands."""
    return list(_entries(PROGRAM, main))


def _entries(name: str, command: click.Command) -> Iterator[Entry]:
    context = _context(name, command)
    yield Entry(name, command, " ".join(command.collect_usage_pieces(context)))
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None
            yield from _entries(f"{name} {each}", inner)


def _context(name: str, command: click.Command) -> click.Context:
    names = main.context_settings["help_option_names"]
    return click.Context(command, info_name=name, help_option_names=names)


def commands_page() -> str:
    """Returns the page of commands."""
    lines = [
        "What `router COMMAND --help` prints, and `man router-COMMAND` shows."
        " [Exit codes](../exit-codes.md) has the codes of all commands.",
        "",
    ]
    for each in entries():
        lines += [f"## {each.name}", "", "```", f"{each.name} {each.usage}", "```", ""]
        for paragraph in filter(None, (*each.text, each.command.epilog)):
            lines += [paragraph, ""]
        lines += table(
            ("option", "meaning"), [(code(option), text) for option, text in each.options]
        )
    return page("Commands", "the help texts of `router/cli`", lines)


_SHELLS: Final[dict[str, type[ShellComplete]]] = {
    "bash-completion/completions/router": BashComplete,
    "zsh/site-functions/_router": ZshComplete,
    "fish/vendor_completions.d/router.fish": FishComplete,
}
"""By place below ``share``, where each shell looks."""


def completions() -> Iterator[tuple[str, str]]:
    """Yields each file of completion, by its place below ``share``."""
    for place, shell in _SHELLS.items():
        made = shell(main, {}, PROGRAM, "_ROUTER_COMPLETE")
        yield place, (made.source_template % made.source_vars()).strip() + "\n"
