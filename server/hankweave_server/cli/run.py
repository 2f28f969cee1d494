"""`hankweave run`: its options; `shared/serving.py` does the work.

What a server needs is loaded when one is to run: `--help`, and the commands that share options with
this one, do without.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from hankweave_server.cli.output.text import print_error
from hankweave_server.cli.shared import completions, invocation, run_settings
from hankweave_server.cli.shared.run_settings import (
    confinement_option,
    log_format_option,
    log_level_option,
    require_confinement_option,
    settings_of,
    variables_of,
    with_options_of_features,
)
from hankweave_server.config import NO_PROXY
from hankweave_server.hank.agents import BY_NAME
from hankweave_server.local import ephemeral_server
from hankweave_server.settings import WatchMode, duration, safe_points_named

if TYPE_CHECKING:
    pass


@click.command()
@click.argument("hank", type=click.Path(path_type=Path), required=False)
@click.argument("data", type=click.Path(path_type=Path, allow_dash=True), required=False)
@click.option("--config", type=click.Path(path_type=Path), help="Same as HANK.")
@click.option("--data", "data_option", type=click.Path(path_type=Path), help="Same as DATA.")
@click.option("--input", "-i", metavar="TEXT", help="Use this text as the data; - is stdin.")
@click.option(
    "--execution", "-e", type=click.Path(path_type=Path), help="Execution directory to use."
)
@click.option(
    "--workspace", "-w", type=click.Path(path_type=Path), help="Project to work in, in place."
)
@click.option(
    "--state-dir",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the history of a project in this directory, outside of the project; one that "
    "exists moves there.",
)
@click.option(
    "--adopt-state",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Continue the history in this directory: that of a project that was moved, or a copy.",
)
@click.option(
    *("--port", "-p"),
    type=click.IntRange(0, 65535),
    help="Port. Default: that of the last server here if it is free, or any other.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    callback=lambda _context, _option, text: run_settings.checked("host", text),
    help="IP address to listen on. Default: 127.0.0.1, so only this machine can connect.",
)
@click.option(
    "--public-url",
    metavar="URL",
    callback=lambda _context, _option, text: run_settings.checked("publicUrl", text),
    help="Address at which browsers find the page: that of a proxy or of a published port.",
)
@click.option(
    "--without-tls",
    is_flag=True,
    help="Let tokens cross a network that you trust without encryption.",
)
@click.option("--headless", is_flag=True, help="Exit when the plan ends, with the run's exit code.")
@click.option(
    "--exit-on-complete/--no-exit-on-complete",
    default=None,
    help="Exit when the plan ends, or keep serving. Default: exit if stdout is not a terminal and "
    "no client is connected.",
)
@click.option(
    "--keep-running",
    is_flag=True,
    help="Go on in the background if the terminal is closed; `hankweave attach` shows it again.",
)
@click.option("--no-autostart", is_flag=True, help="Wait for `hankweave next` to start the plan.")
@completions.codon_option(
    "--from",
    "begin_at",
    help="Restart the plan at this codon, on the current files.",
)
@completions.codon_option(
    "--until",
    help="End the plan after this codon; the next run continues with the rest.",
)
@click.option(
    "--variables",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Values for variables of the hank, a JSON object, for this and later starts.",
)
@click.option("--copy", is_flag=True, help="Copy the data instead of linking to it.")
@click.option(
    "--new", "--start-new", "-n", is_flag=True, help="Create a new execution; do not resume one."
)
@click.option(
    "--force",
    "-f",
    is_flag=True,
    help="Continue with changed data or a changed hank; with --new, set aside the old execution.",
)
@click.option(
    "--no-wipe", is_flag=True, help="With --new --force, keep the files of the work tree."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@click.option("--agent", type=click.Choice(sorted(BY_NAME)), help="Agent for all codons.")
@click.option("--model", "-m", help="Model for all codons; overrides the hank.")
@click.option(
    "--no-agent-check",
    is_flag=True,
    help="Start even if an agent is missing or not logged in, or a required sentinel cannot load.",
)
@click.option(
    "--reuse/--no-reuse",
    default=None,
    help="Take over results of earlier codons with the same inputs, or run every codon. "
    "Default: as the hank says.",
)
@click.option("--ignore-rig-failures", is_flag=True, help="Continue when a rig operation fails.")
@click.option(
    "--shim-idle-timeout",
    type=click.IntRange(1, 1800),
    metavar="SECONDS",
    help="Maximum silence of an agent, for codons that do not set it.",
)
@click.option("--anthropic-base-url", metavar="URL", help="Base URL of Anthropic's API.")
@click.option("--no-token", is_flag=True, help="Give every local program full access.")
@click.option(
    "--new-tokens",
    is_flag=True,
    help="Make new tokens; addresses with the old ones stop working.",
)
@click.option(
    "--safe-points",
    metavar="LIST",
    callback=lambda _context, _option, text: _checked_safe_points(text),
    help="Automatic checkpoints: rig-setup, before-tool, tool, turn; all (default) or none.",
)
@run_settings.budget_option("--max-cost", "Budget of the execution, in US dollars, above 0.")
@run_settings.budget_option("--max-time", "Budget of all codons together, in seconds, above 0.")
@click.option(
    "--max-wait",
    metavar="DURATION",
    callback=lambda _context, _option, text: _checked_duration(text),
    help="Longest wait for the end of a provider's limit: seconds, or 30m, 8h, 2d; 0 for none.",
)
@with_options_of_features
@click.option("--prices", type=click.Path(path_type=Path), help="File with your own model prices.")
@click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path, file_okay=False, resolve_path=True),
    help="Copy the output files of codons to this directory.",
)
@click.option(
    "--overwrite-output",
    is_flag=True,
    help="Overwrite existing files there; otherwise, a copy gets another name.",
)
@click.option(
    "--watch",
    type=click.Choice(get_args(WatchMode)),
    help="auto: compare only files that changed; off: compare all files for each checkpoint.",
)
@confinement_option
@require_confinement_option
@log_level_option
@log_format_option
@click.option("--plain", is_flag=True, help="Print plain lines, even on a terminal.")
@click.option("--json", "as_json", is_flag=True, help="Print the events as JSON lines.")
@click.option("--without-proxy/--proxy", default=None, hidden=True)
@click.option("--idle-timeout", type=click.IntRange(0, 255), hidden=True)
@click.option("--ignore-data-mismatch", is_flag=True, hidden=True)
@click.option(invocation.AS_HANKWEAVE, is_flag=True, hidden=True)
@click.option("--default-hank", type=click.Path(path_type=Path), hidden=True)
@click.option("--default-data", type=click.Path(path_type=Path), hidden=True)
@click.option("--for-a-moment", is_flag=True, hidden=True)
@click.pass_context
def run(context: click.Context, /, **given: Any) -> None:
    """Run HANK on DATA, and serve clients.

    HANK is a hank.json or its directory. It defaults to the hank.json of the current directory, or
    with --execution or --workspace, to the hank that was run there. A workspace without one is
    served without a plan, for checkpoints and rollbacks only. DATA may be - for stdin. An earlier
    execution of the same data is resumed.

    On a terminal, the server runs until it is stopped; elsewhere it exits when the plan ends,
    unless a client is connected. While a step runs on a terminal, Ctrl-C asks whether to finish it
    first, to stop now or to continue; a second Ctrl-C stops now. A closed terminal stops the server
    as well, unless --keep-running is given.

    \b
    hankweave run examples/earthquakes/hank.json examples/earthquakes/data
    hankweave run my.json data/ --headless && echo done
    hankweave run --workspace ~/my-project

    The command line of the original Hankweave works, too: `hankweave my-project`, `hankweave --data
    data/ -y`, or `hankweave` alone in a directory with a hank.json. There, DATA defaults to the
    directory of the hank. Settings come from options, HANKWEAVE_RUNTIME_* variables, the hank's
    overrides and hankweave.json, in this order of precedence; `hankweave config` shows the result.
    """
    if given["for_a_moment"]:
        ephemeral_server.end_with_stdin()

    if given["without_proxy"] is False:
        raise click.UsageError(f"--proxy: {NO_PROXY}.")

    if given["ignore_data_mismatch"]:
        print_error("warning: --ignore-data-mismatch is deprecated; use --force instead.")

    from hankweave_server.cli.shared.serving import serve
    from hankweave_server.config import WEBHOOK_SECRET

    sys.exit(serve(settings_of(given, variables_of(context.command) | {WEBHOOK_SECRET})))


def _checked_safe_points(text: str | None) -> str | None:
    try:
        return None if text is None else (safe_points_named(text), text)[1]
    except ValueError as problem:
        raise click.BadParameter(str(problem)) from None


def _checked_duration(text: str | None) -> float | None:
    try:
        return None if text is None else duration(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None


COMMANDS = (run,)
