"""`hankweave permissions`, `allow` and `deny`: list and answer permission requests."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from hankweave_client.client import Client
from hankweave_protocol.records import PendingPermission
from hankweave_server.cli.output.event_lines import call_text
from hankweave_server.cli.output.text import clock_with_zone
from hankweave_server.cli.remote import ask_running, execution_option, json_option, print_json
from hankweave_server.errors import ExitCode, Stop
from hankweave_server.local.targeting import root_to_change
from hankweave_server.plain_text import one_line


@click.command()
@execution_option
@json_option
def permissions(execution: Path | None, as_json: bool) -> None:
    """List the pending permission requests of agents.

    \b
    hankweave permissions
    """
    pending = ask_running(execution, _pending)
    if as_json:
        print_json(pending)
        return

    for asked in pending:
        click.echo(_line(asked))
        click.echo(one_line(f"          {asked.reason}"))

    if not pending:
        click.echo("No permission request is pending.")


@click.command()
@click.argument("request_id", metavar="[ID]", required=False)
@execution_option
@json_option
def allow(request_id: str | None, execution: Path | None, as_json: bool) -> None:
    """Allow the tool call of a permission request.

    ID may be omitted if only one request is pending.

    \b
    hankweave allow
    hankweave allow 5f0c2a91
    """
    _answer(request_id, execution, "allow", None, as_json)


@click.command()
@click.argument("request_id", metavar="[ID]", required=False)
@execution_option
@click.option("--message", "-m", help="Reason, for the agent.")
@json_option
def deny(
    request_id: str | None, execution: Path | None, message: str | None, as_json: bool
) -> None:
    """Deny the tool call of a permission request.

    ID may be omitted if only one request is pending.

    \b
    hankweave deny --message "Not on a Friday."
    """
    _answer(request_id, execution, "deny", message, as_json)


def _answer(
    request_id: str | None,
    execution: Path | None,
    decision: Literal["allow", "deny"],
    message: str | None,
    as_json: bool,
) -> None:
    async def work(client: Client) -> str:
        name = request_id or _only(await _pending(client)).request_id
        await client.answer_permission(name, decision, message)
        return name

    answered = ask_running(root_to_change(execution), work)
    if as_json:
        print_json({"requestId": answered, "decision": decision})
    else:
        click.echo(f"{one_line(answered)} is {'allowed' if decision == 'allow' else 'denied'}.")


async def _pending(client: Client) -> tuple[PendingPermission, ...]:
    return (await client.status()).pending_permissions


def _only(pending: tuple[PendingPermission, ...]) -> PendingPermission:
    if not pending:
        raise Stop(
            "No permission request is pending.",
            ExitCode.FAILED,
            hint="Earlier ones were answered, or their time was up: `hankweave log` shows that.",
        )

    if len(pending) > 1:
        listed = "\n".join(_line(asked) for asked in pending)
        hint = f"Specify the ID of one of them:\n{listed}"
        raise Stop(f"{len(pending)} permission requests are pending.", ExitCode.USAGE, hint=hint)

    return pending[0]


def _line(asked: PendingPermission) -> str:
    what = call_text(asked.tool_name, asked.tool_input)
    until = clock_with_zone(asked.expires_at)
    return one_line(f"{asked.request_id}  {asked.codon_id}  {what}  until {until}")


COMMANDS = (permissions, allow, deny)
