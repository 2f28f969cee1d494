"""`hankweave permissions`, `allow` and `deny`: list and answer permission requests."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from hankweave_client.client import Client
from hankweave_protocol.commands import GetServerStatus, GetState, PermissionAnswer
from hankweave_protocol.records import PendingPermission
from hankweave_protocol.state import PermissionRule
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

    The rules that answers have added follow. --json prints the requests alone.

    \b
    hankweave permissions
    """
    pending, rules = ask_running(execution, _pending_and_rules)
    if as_json:
        print_json(pending)
        return

    for asked in pending:
        click.echo(_line(asked))
        click.echo(one_line(f"          {asked.reason}"))
        if asked.suggestion is not None:
            click.echo(one_line(f"          --always would allow every {asked.suggestion}"))

    if not pending:
        click.echo("No permission request is pending.")

    if rules:
        click.echo("Allowed from now on, in this execution:")

    for added in rules:
        click.echo(one_line(f"  {added.rule}  (request {added.request_id} of {added.codon_id})"))


@click.command()
@click.argument("request_id", metavar="[ID]", required=False)
@execution_option
@click.option(
    "--always",
    metavar="[RULE]",
    is_flag=False,
    flag_value="",
    help="Allow every call that matches RULE, in this execution. Default: the suggested rule.",
)
@json_option
def allow(
    request_id: str | None, execution: Path | None, always: str | None, as_json: bool
) -> None:
    """Allow the tool call of a permission request.

    ID may be omitted if only one request is pending. `hankweave permissions` shows the rule that
    --always suggests; RULE is written as in the hank's permissions.

    \b
    hankweave allow
    hankweave allow 5f0c2a91
    hankweave allow 5f0c2a91 --always
    hankweave allow 5f0c2a91 --always 'Bash(git diff *)'
    """
    _answer(request_id, execution, "allow", None, as_json, always=always)


@click.command()
@click.argument("request_id", metavar="[ID]", required=False)
@execution_option
@click.option("--reason", "--message", "-m", "message", help="Reason, for the agent.")
@json_option
def deny(
    request_id: str | None, execution: Path | None, message: str | None, as_json: bool
) -> None:
    """Deny the tool call of a permission request.

    ID may be omitted if only one request is pending.

    \b
    hankweave deny --reason "Not on a Friday."
    """
    _answer(request_id, execution, "deny", message, as_json)


def _answer(
    request_id: str | None,
    execution: Path | None,
    decision: Literal["allow", "deny"],
    message: str | None,
    as_json: bool,
    *,
    always: str | None = None,
) -> None:
    """Answer a request; `always` is a rule, or empty for the suggested one."""

    async def work(client: Client) -> tuple[str, str | None]:
        name, rule = request_id, always
        if name is None or rule == "":
            pending = await _pending(client)
            asked = _only(pending) if name is None else _named(pending, name)
            name = asked.request_id
            rule = _suggested(asked) if rule == "" else rule

        await client.send(
            PermissionAnswer(request_id=name, decision=decision, message=message, always=rule)
        )
        return name, rule

    answered, rule = ask_running(root_to_change(execution), work)
    if as_json:
        added = {} if rule is None else {"always": rule}
        print_json({"requestId": answered, "decision": decision, **added})
        return

    also = "" if rule is None else f", and every {rule} from now on"
    done = "allowed" if decision == "allow" else "denied"
    click.echo(one_line(f"{answered} is {done}{also}."))


async def _pending_and_rules(
    client: Client,
) -> tuple[tuple[PendingPermission, ...], tuple[PermissionRule, ...]]:
    return await _pending(client), (await client.send(GetState())).permission_rules


def _named(pending: tuple[PendingPermission, ...], request_id: str) -> PendingPermission:
    for asked in pending:
        if asked.request_id == request_id:
            return asked

    raise Stop(
        f"There is no pending permission request {request_id}.",
        ExitCode.FAILED,
        hint="`hankweave permissions` lists them.",
    )


def _suggested(asked: PendingPermission) -> str:
    if asked.suggestion is None:
        raise Stop(
            "No narrow rule matches this call.",
            ExitCode.USAGE,
            hint=f"Write one: `hankweave allow {asked.request_id} --always 'Bash(git diff *)'`",
        )

    return asked.suggestion


async def _pending(client: Client) -> tuple[PendingPermission, ...]:
    return (await client.send(GetServerStatus())).pending_permissions


def _only(pending: tuple[PendingPermission, ...]) -> PendingPermission:
    if not pending:
        raise Stop(
            "No permission request is pending.",
            ExitCode.FAILED,
            hint="Earlier requests were answered or have expired; `hankweave log` shows which.",
        )

    if len(pending) > 1:
        listed = "\n".join(_line(asked) for asked in pending)
        hint = f"Specify the ID of one of them:\n{listed}"
        raise Stop(f"{len(pending)} permission requests are pending.", ExitCode.USAGE, hint=hint)

    return pending[0]


def _line(asked: PendingPermission) -> str:
    what = call_text(asked.tool_name, asked.tool_input)
    decided = "allowed" if asked.on_expiry == "allow" else "denied"
    until = f"{clock_with_zone(asked.expires_at)}, then {decided}"
    return one_line(f"{asked.request_id}  {asked.codon_id}  {what}  until {until}")


COMMANDS = (permissions, allow, deny)
