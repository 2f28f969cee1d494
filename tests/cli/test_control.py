"""Claims about steering a plan from the command line."""

from __future__ import annotations

from pathlib import Path

from hankweave_protocol.events import CodonCompletedEvent, CodonStartedEvent, ServerIdle
from hankweave_server.local.catalog import listed
from support.command_line import Done, aside, hankweave
from support.running_server import served
from support.scripted_hank import codon, waits_for, write_hank


async def steer(execution: Path, *words: str, code: int = 0) -> Done:
    return await aside(*words, "-e", str(execution), code=code)


async def test_a_plan_is_stepped_stopped_retried_and_skipped(tmp_path: Path) -> None:
    """Each command works as named, and names the execution; ending a codon needs a yes."""
    never = tmp_path / "never"
    hank = write_hank(
        tmp_path / "hank", codon("one", waits_for(never)), codon("two", waits_for(never))
    )
    async with served(hank, tmp_path / "execution", "--no-autostart", since_seq=0) as (
        server,
        client,
    ):
        at = server.execution
        await client.until(ServerIdle)
        assert listed(at).is_idle
        assert listed(at).failure is None
        assert f"execution {at}\n" in (await steer(at, "next")).stderr
        assert (await client.until(CodonStartedEvent)).codon_id == "one"
        assert "--yes" in (await steer(at, "stop", code=2)).stderr

        await steer(at, "stop", "--yes", "--reason", "It runs in circles.")
        stopped = (await client.until(CodonCompletedEvent)).data
        assert isinstance(stopped, CodonCompletedEvent)
        assert stopped.failure_reason.message == "It runs in circles."
        await client.until(ServerIdle)
        row = listed(at)
        assert (row.state, row.is_idle, row.failure) == ("running", True, "It runs in circles.")

        await steer(at, "retry")
        await client.until(CodonStartedEvent)
        assert not listed(at).is_idle
        await steer(at, "skip", "--yes")
        skipped = (await client.until(CodonCompletedEvent)).data
        assert isinstance(skipped, CodonCompletedEvent)
        assert skipped.skipped

        await steer(at, "next", "two")
        assert (await client.until(CodonStartedEvent)).codon_id == "two"
        refused = await steer(at, "next", code=1)
        assert "run `hankweave skip" in refused.stderr
        assert "`hankweave stop" in refused.stderr  # With -e, if another server runs as well.

        await steer(at, "stop", "--server", "--yes")
        assert await server.ended() == 0


def test_steering_wants_a_server(tmp_path: Path) -> None:
    """The exit code is 69, and the message says how to start a server."""
    hank, execution = write_hank(tmp_path / "hank", codon("one")), tmp_path / "execution"
    hankweave("run", str(hank), "-e", str(execution), "--headless", code=0)
    for verb in ("next", "retry", "skip", "stop"):
        words = (verb, "-e", str(execution), *(["--yes"] if verb in ("skip", "stop") else []))
        assert f"hankweave run -e {execution}" in hankweave(*words, code=69).stderr
