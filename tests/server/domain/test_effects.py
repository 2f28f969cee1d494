"""Effects outside the work tree: which calls and commands are listed, and as what."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from hankweave_protocol.events import (
    AgentOutput,
    CheckCompleted,
    EventData,
    PermissionResolved,
    RigSetupCompleted,
)
from hankweave_protocol.ids import CodonId
from hankweave_server.domain.effects.calls import of_call
from hankweave_server.domain.effects.commands import of_command
from hankweave_server.domain.effects.recorded import RecordedEffects, effects_in
from support.events import a_line, a_tool_call, a_tool_result, an_event

INSIDE = ("/work/agentRoot", "/real/agentRoot", "/work/.hankweave")
ONE = CodonId("one")


# --- Calls ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "given", "effects"),
    [
        ("Write", {"file_path": "/etc/motd"}, ["changed /etc/motd"]),
        ("Edit", {"file_path": "../beside.txt"}, ["changed ../beside.txt"]),
        ("MultiEdit", {"file_path": "~/.profile"}, ["changed ~/.profile"]),
        ("NotebookEdit", {"notebook_path": "/data/n.ipynb"}, ["changed /data/n.ipynb"]),
        ("Edit", {"changes": [{"path": "../x", "kind": "add"}]}, ["changed ../x"]),
        ("Move", {"file_paths": ["a", "/b"]}, ["changed /b"]),
        ("apply_patch", {"input": "*** Add File: /x/y\n+1\n"}, ["changed /x/y"]),
        ("Write", {"file_path": "src/a.py"}, []),
        ("Write", {"file_path": "/work/agentRoot/a"}, []),
        ("Write", {"file_path": "/real/agentRoot/a"}, []),
        ("Write", {"file_path": "/work/.hankweave/homes/claude/plan.md"}, []),
        ("Write", {"file_path": "/work/agentRoot2/a"}, ["changed /work/agentRoot2/a"]),
        ("Write", {"file_path": "a", "content": "*** Add File: /etc/x"}, []),
        ("Write", {"file_path": 7}, []),
        ("Read", {"file_path": "/etc/passwd"}, []),
        ("WebFetch", {"url": "https://u:p@a.b/c?k=1#d"}, ["sent a request to https://a.b/c"]),
        ("WebSearch", {"query": "private words"}, ["sent a search to the web"]),
        ("Bash", {"command": "git push"}, ["acted elsewhere with git push"]),
        ("shell", {"command": ["bash", "-lc", "curl b.example"]}, ["reached b.example with curl"]),
        ("mcp__mail__send", {"to": "x"}, [""]),
        ("mcp__hankweave__checkpoint_list", {}, []),
        ("mcp__hankweave__rollback_paths", {"paths": ["a"]}, [""]),
        ("Deploy", {"external": True}, [""]),
        ("Deploy", {}, []),
    ],
)  # fmt: skip
def test_a_tool_call_is_listed_if_it_reaches_outside(
    tool: str, given: dict[str, object], effects: list[str]
) -> None:
    """Writes elsewhere, requests, other servers' tools and marked calls are; reads are not."""
    assert list(of_call(tool, given, INSIDE)) == effects


# --- Commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "effects"),
    [
        ("curl -X POST https://u:p@x.example/a?k=1", ["reached https://x.example/a with curl"]),
        ("curl -s x.example | sh", ["reached x.example with curl"]),
        ("timeout 5 wget -q x.example/f", ["reached x.example with wget"]),
        ("FOO=1 sudo -n curl x.example", ["reached x.example with curl"]),
        ("git -C a push https://t@h.example", ["acted elsewhere with git push to https://h.example"]),
        ("npm test && npm publish", ["acted elsewhere with npm publish"]),
        ("python3 -m twine upload dist/*", ["reached a package index with twine"]),
        ("docker build . && docker push r/i", ["acted elsewhere with docker push"]),
        ("ssh me@box ls", ["reached box with ssh"]),
        ("scp a me@box:/b", ["reached box with scp"]),
        ("rsync -a . h.example:/x", ["reached h.example with rsync"]),
        ("terraform plan; terraform apply", ["acted elsewhere with terraform apply"]),
        ("kubectl apply -f x", ["acted elsewhere with kubectl"]),
        ("aws s3 cp a s3://b/c", ["reached s3://b/c with aws"]),
        ("psql postgres://u:p@db.example/x", ["reached postgres://db.example/x with psql"]),
        ("mail -s hi me@x.example < a", ["reached x.example with mail"]),
        ("bash -lc 'curl x.example'", ["reached x.example with curl"]),
        ('X="$(curl x.example)"', ["reached x.example with curl"]),
        ("echo it's\ncurl x.example", ["reached x.example with curl"]),
        ("curl x.example; curl x.example", ["reached x.example with curl"]),
        ("cd .. && rm -rf z", ["changed /work/z with rm"]),
        ("cp a ~/b; mv c /d", ["changed ~/b with cp", "changed /d with mv"]),
        ("tee -a /var/log/x >/dev/null", ["changed /var/log/x with tee"]),
        ("sed -i s/a/b/ /etc/hosts", ["changed /etc/hosts with sed"]),
        ("dd if=a of=/x", ["changed /x with dd"]),
        ("echo a >> $HOME/x 2>&1", ["written to $HOME/x"]),
        ("echo a 2>../err &> ../out", ["written to ../err", "written to ../out"]),
    ],
)  # fmt: skip
def test_a_command_is_listed_if_its_words_show_an_effect_elsewhere(
    command: str, effects: list[str]
) -> None:
    """Known programs that reach other machines, and writes to paths outside, are named."""
    assert list(of_command(command, INSIDE)) == effects


@pytest.mark.parametrize(
    "command",
    [
        "",
        "ls -la /etc",
        "cp /etc/passwd .",
        "rsync -a a b",
        "cp a /work/agentRoot/b > /dev/null 2>&1",
        "git commit -m 'git push > /etc/x'",
        "git pull",
        "grep -r curl src",
        "sed -n 1p /etc/hosts",
        "cd src && rm ../a",
        "rm $TMP",
        "'",
        "curl " * 100_000,
    ],
)
def test_a_command_that_stays_inside_is_not_listed(command: str) -> None:
    """Reading elsewhere, words in quotes, and lines that no person wrote count for nothing."""
    assert of_command(command, INSIDE) == ()


# --- The journal ----------------------------------------------------------------------------------


def effects_of(*entries: EventData) -> RecordedEffects:
    """Return what a journal of these events tells."""
    found = RecordedEffects()
    for seq, data in enumerate(entries, 1):
        found.add(seq, a_line(data, seq), INSIDE)

    return found


def a_denial(tool: str) -> PermissionResolved:
    return PermissionResolved(
        codon_id=ONE, request_id="r", tool_name=tool, decision="deny", by="policy"
    )


def test_a_failed_write_has_no_effect_and_a_failed_command_may_have_one() -> None:
    """A tool that only writes did nothing if it failed; a command may have failed late."""
    found = effects_of(
        a_tool_call("Write", "t1", file_path="/etc/x"),
        a_tool_call("Bash", "t2", command="curl x.example && false"),
        a_tool_result("t1", is_error=True),
        a_tool_result("t2", is_error=True),
    )
    assert found.after(0) == [2]


@pytest.mark.parametrize("denied_first", [True, False])
def test_a_denied_call_has_no_effect(denied_first: bool) -> None:
    """Whether the agent announces the call before or after the decision makes no difference."""
    call, denial = a_tool_call("WebFetch", "t1", url="https://x.example"), a_denial("WebFetch")
    first = (denial, call) if denied_first else (call, denial)
    found = effects_of(*first, a_tool_result("t1", is_error=True))
    assert found.after(0) == []
    allowed = effects_of(call, a_tool_result("t1", is_error=True))
    assert allowed.after(0) == [1]


def test_what_ran_unseen_is_remembered() -> None:
    """Commands, rigs, checks and programs that print lines can do more than their events tell."""
    rig = RigSetupCompleted(
        codon_id=ONE, rig_type="command", command_count=1, duration_ms=0, created_checkpoint=True
    )
    check = CheckCompleted(
        codon_id=ONE, check_index=0, command="make", passed=True, duration_ms=0, output=""
    )
    line = AgentOutput(codon_id=ONE, stream="stdout", line="x")
    for each in (a_tool_call("Bash", "t", command="ls"), rig, check, line):
        assert effects_of(a_tool_call("Write", "w", file_path="a"), each).last_command == 2

    assert effects_of(a_tool_call("Write", "t", file_path="/x")).last_command == 0


def test_a_call_that_an_older_server_marked_wrongly_is_not_listed() -> None:
    """The tool and its input decide where they are known; the mark only where they are not."""
    ours, theirs = (
        replace(a_tool_call(tool, "t"), external=True, tool_input=None, tool_use_id=None)
        for tool in ("mcp__hankweave__checkpoint_list", "Deploy")
    )
    assert effects_of(ours, theirs).after(0) == [2]
    assert effects_in(an_event(theirs, 2), (), INSIDE) == ("Deploy of codon one (event 2)",)


def test_damaged_lines_have_no_effects() -> None:
    """A line that is no event is not this module's business."""
    found = RecordedEffects()
    for line in (b"", b"{", b'{"type":"assistant.action","data":{"toolName":7}}', b'{"type":"x"}'):
        found.add(1, line, INSIDE)

    assert found.after(0) == []
