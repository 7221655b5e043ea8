"""Exit codes of all commands: what ``--help`` and docs/exit-codes.md say of them.

0 is done, 1 failed while running, 2 bad usage or configuration; a command says here what that means
for it. ``python -m router.cli.exit_codes`` writes docs/exit-codes.md.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

BAD_USAGE: Final = "an argument or option is wrong; nothing was done"
BAD_FILE: Final = "CONFIG has problems, printed as FILE:LINE:COLUMN: PROBLEM, or an option is wrong"
NO_ANSWER: Final = "the router does not answer, or refuses the request"
NO_EXTRA: Final = "an option is wrong, or the extra router[spark] is not installed"

EXIT_CODES: Final[Mapping[str, Mapping[int, str]]] = {
    "run": {
        0: "ended by SIGTERM, SIGINT, `router drain`, or because a newer process took its place",
        1: "failed: a port is in use, the state directory cannot be used, or a worker does not"
        " start",
        2: BAD_FILE,
    },
    "check": {
        0: "CONFIG can be served; with --connect: and each container has what it needs",
        1: "with --connect: something would fail at a container",
        2: BAD_FILE,
    },
    "explain": {
        0: "a route takes ADDRESS; with --mesh: some site, or this router, serves it",
        1: "no route does; with --mesh: nobody does, no way leads there, or the router does not"
        " answer",
        2: BAD_FILE,
    },
    "demo": {0: "nothing was lost or duplicated", 1: "something was, or failed", 2: BAD_USAGE},
    "send": {
        0: "every message was accepted",
        1: "some were not, nobody could be reached, or there was no progress for --timeout",
        2: BAD_USAGE,
    },
    "receive": {
        0: "--count messages have come; without it, ended by --timeout, Ctrl-C or the reader of"
        " standard output",
        1: "fewer than --count have come, a message could not be printed, or nobody could be"
        " reached",
        2: BAD_USAGE,
    },
    "status": {
        0: "the router answers; with --check: it is ready, or a standby, and no problem is an"
        " error",
        1: f"{NO_ANSWER}; with --check also: it is neither ready nor a standby, or a problem is an"
        " error",
        2: BAD_USAGE,
    },
    "top": {0: "ended by Ctrl-C or --count", 1: "failed", 2: BAD_USAGE},
    "deliveries": {
        0: "they are listed; `resolve`: at least one was resolved",
        1: f"{NO_ANSWER}; there is no such route; `resolve`: nothing in doubt has the tag, or"
        " deliveries of several links do",
        2: BAD_USAGE,
    },
    "store": {
        0: "what is stored is listed, dropped or tried",
        1: f"{NO_ANSWER}; there is no such route, or it stores nothing; with --state: the store"
        " cannot be read; `drop`: not confirmed",
        2: BAD_USAGE,
    },
    "mesh": {
        0: "the mesh is shown; with --check: every neighbor and every site is reached",
        1: f"{NO_ANSWER}; it is in no mesh; with --check also: a neighbor or a site is not reached",
        2: BAD_USAGE,
    },
    "trace": {0: "the trace has ended, with or without deliveries", 1: NO_ANSWER, 2: BAD_USAGE},
    "pause": {0: "the route is paused", 1: f"{NO_ANSWER}; there is no such route", 2: BAD_USAGE},
    "resume": {0: "the route is resumed", 1: f"{NO_ANSWER}; there is no such route", 2: BAD_USAGE},
    "drain": {
        0: "the router has ended, or another one leads (--to-standby); with --no-wait: it drains",
        1: f"{NO_ANSWER}; with --to-standby also: no standby has taken the lease",
        2: BAD_USAGE,
    },
    "reload": {
        0: "the file is in force",
        1: f"{NO_ANSWER}: it is a standby, is draining, or has not begun to serve",
        2: "the file has problems, which are printed, and nothing was changed; or an option is"
        " wrong",
    },
    "user": {0: "the file is written", 1: "it cannot be read or written", 2: BAD_USAGE},
    "journal": {0: "nothing durable is missing", 1: "something is", 2: BAD_USAGE},
    "ledger": {0: "done", 1: "failed", 2: NO_EXTRA},
    "audit": {0: "nothing was lost or duplicated", 1: "something was, or it failed", 2: NO_EXTRA},
    "traffic": {0: "done", 1: "failed", 2: NO_EXTRA},
    "otel": {
        0: "what was there is exported; with --follow: ended by SIGTERM or Ctrl-C",
        1: "the collector does not take spans, the state directory cannot be used, or another"
        " process exports them",
        2: "an option is wrong, or the extra router[otel] is not installed",
    },
    "replay": {0: "all that was selected is sent", 1: "failed", 2: NO_EXTRA},
}
"""By command and code: what it means."""


def epilog(command: str) -> str | None:
    """Returns what ``--help`` of a command ends with; None: nothing is known of the command."""
    codes = EXIT_CODES.get(command)
    if codes is None:
        return None
    return "Exit codes: " + "; ".join(f"{code}: {meaning}" for code, meaning in codes.items()) + "."


def page() -> str:
    """Returns docs/exit-codes.md."""
    lines = [
        "# Exit codes",
        "",
        "0 is done, 1 failed while running, 2 bad usage or configuration. `--help` of each command"
        " says the same as this",
        "table, which `python -m router.cli.exit_codes` writes.",
        "",
        "| command | code | meaning |",
        "|---|---|---|",
    ]
    for command, codes in EXIT_CODES.items():
        for code, meaning in codes.items():
            lines.append(f"| `router {command}` | {code} | {meaning} |")
    lines += [
        "",
        "A command that a signal ends has the code that the shell makes of it: 130 after Ctrl-C,"
        " 143 after SIGTERM, where",
        "the table does not say otherwise. `router status --check` is made for cron and for probes"
        " of a monitor:",
        "",
        "```",
        "router status --check --config /etc/router.yaml || mail -s 'router' operator < /dev/null",
        "```",
        "",
        "An error is a problem that keeps something from working: a container that is away, a route"
        " that is stalled or",
        "broken, deliveries rejected during the last five minutes, a journal that cannot write."
        " Warnings and notes are",
        "listed and counted in the heading, and do not change the code. A standby in order is not"
        " ready, `/readyz` says so,",
        "and yet its code is 0; it is 1 while the standby could not take over.",
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    Path("docs/exit-codes.md").write_text(page())
