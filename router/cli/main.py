"""The program ``router`` and its commands, each of which is imported on use."""

from importlib import import_module
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from router import __version__
from router.at_rest import at_rest
from router.cli.exit_codes import epilog
from router.cli.interrupts import INTERRUPTED

VERBS: Final = {
    "run": ("run.command", "Run the router in the foreground."),
    "check": ("check.command", "Validate a configuration; print the guarantee of each route."),
    "explain": ("explain.command", "Print the route that an address takes, and why."),
    "demo": ("demo.command", "Show the router's work on this machine; needs no broker."),
    "send": ("send.command", "Send messages, and print their outcomes."),
    "receive": ("receive.command", "Receive messages."),
    "status": ("status.command", "The state of a running router, its problems first."),
    "top": ("top.command", "Watch a running router."),
    "deliveries": ("deliveries.command", "List unsettled deliveries; resolve those in doubt."),
    "store": ("store.command", "What stored routes hold; drop it, or try it now."),
    "mesh": ("mesh.command", "The sites of the mesh, and the ways to them."),
    "trace": ("trace.command", "Trace the next deliveries of an address."),
    "pause": ("pause.pause", "Pause a route."),
    "resume": ("pause.resume", "Resume a paused route."),
    "drain": ("drain.command", "Drain a running router: finish open deliveries, then end."),
    "reload": ("reload.command", "Let a running router read its file again."),
    "user": ("user.command", "Keep a file of users with hashed passwords."),
    "journal": (
        "journal.command",
        "Inspect the journal and the ledger; move the journal.",
    ),
    "ledger": ("ledger.command", "Make and describe the ledger for audits."),
    "audit": ("audit.command", "Check for every delivery whether it was delivered once."),
    "traffic": ("traffic.command", "Traffic between senders and receivers, from ledgers."),
    "otel": ("otel.command", "Export spans of traced deliveries to OpenTelemetry."),
    "replay": ("replay.command", "Send messages of an archive again, each exactly once."),
}
"""By command name: its place in ``router.cli``, and its line in the list of commands."""


class Program(click.Group):
    """A group whose commands are imported on use: ``router --version`` reads none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names, in the order that a newcomer needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports a command; None: there is none of that name."""
        if cmd_name not in VERBS:
            return None
        module, _, name = VERBS[cmd_name][0].partition(".")
        with at_rest():
            command: Any = getattr(import_module(f"router.cli.{module}"), name)
        assert isinstance(command, click.Command)
        command.epilog = epilog(cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Runs a command; one that Ctrl-C ends has the code that a shell gives it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None
        except BaseExceptionGroup as group:
            if group.subgroup(KeyboardInterrupt) is None:
                raise
            raise SystemExit(INTERRUPTED) from None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Completes the names of commands without importing them."""
        names = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in VERBS.items()
            if name.startswith(incomplete)
        ]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in VERBS.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds a command; for an unknown one the error names the most similar command."""
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            from difflib import get_close_matches  # noqa: PLC0415  only for those who mistype

            near = get_close_matches(name, VERBS, 1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {name!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=Program, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="router")
def main() -> None:
    """Route and bridge AMQP messages, settlement included.

    Exit codes: 0 done, 1 failed while running, 2 bad usage or configuration; --help of a command
    says more.
    """
