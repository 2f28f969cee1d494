"""Claims about reuse keys: a difference that can matter changes the key, and nothing else does."""

from __future__ import annotations

import copy
import random
from typing import Any

import msgspec
import pytest

from hankweave_protocol.hank import (
    Codon,
    CommandSpec,
    Confinement,
    Overrides,
    RigCommand,
    SentinelEntry,
)
from hankweave_protocol.ids import CodonId, RunId
from hankweave_protocol.state import EMPTY_STATE, BudgetExceeded, CompletedCodon
from hankweave_server.domain.reuse.decision import (
    ReuseSettings,
    candidates,
    is_offered,
    is_wanted,
    obstacle,
)
from hankweave_server.domain.reuse.key import CodonInputs, differences, digests_of, reuse_key
from support.histories import a_run, completed
from support.tally import Tally

MOST_TRIES = 1000

NOT_KEYED = (
    "promptFile",
    "promptText",
    "appendSystemPromptFile",
    "appendSystemPromptText",
    "description",
    "reuse",
)
"""Fields of a codon of which the inputs have the meaning in another field, or that are comments."""

CODON = {
    "type": "codon",
    "id": "write",
    "name": "Write",
    "model": "sonnet",
    "continuationMode": "continue-previous",
    "description": "Writes.",
    "promptFile": ["prompts/a.md", "prompts/b.md"],
    "promptText": "unused",
    "appendSystemPromptText": "Be brief.",
    "rigSetup": [
        {"type": "copy", "copy": {"from": "tools", "to": "tools"}, "archiveOnSuccess": True},
        {"type": "command", "command": {"run": "make", "timeoutSeconds": 5.0}},
    ],
    "trackedFiles": ["src/**", "!src/tmp"],
    "checkpointedFiles": ["docs/**"],
    "env": {"API_KEY": "sk-1234", "MODE": "fast"},
    "outputFiles": [
        {"copy": ["out/*"], "beforeCopy": [{"type": "command", "command": {"run": "zip"}}]}
    ],
    "archiveOnSuccess": ["tmp/*"],
    "onFailure": "retry",
    "retryConfig": {"maxAttempts": 2, "delayMs": 5, "maxDelayMs": 10},
    "fallbackModels": ["haiku"],
    "fallbackAfter": 60.0,
    "exhaustWithPrompt": "More.",
    "maxExtensions": 3,
    "autoCompact": True,
    "shimIdleTimeout": 60,
    "budget": {"maxDollars": 1.5, "maxOutputTokens": 1000, "onExceeded": "fail"},
    "agent": {"type": "claude", "permissionMode": "plan"},
    "timeoutSeconds": 100.0,
    "condition": "mode == 'fast'",
    "checks": [{"run": "pytest", "timeoutSeconds": 60.0, "allowFailure": True}],
    "outputVar": "answer",
    "checkpointLabel": "written",
    "permissions": {"allow": ["Bash(git *)"], "deny": ["Write(/etc/**)"], "otherwise": "deny"},
    "confinement": {"profile": "workspace", "connect": [443]},
    "attempts": {"n": 2, "variants": [{"name": "v", "variables": {"tone": "dry"}}]},
    "reuse": True,
}
INPUTS = {
    "codonId": "write#1",
    "codon": CODON,
    "loop": {
        "loopId": "loop",
        "iteration": 1,
        "codonIndexInLoop": 0,
        "loopBudget": {"maxDollars": 5.0, "shares": {"write": 0.5}},
    },
    "prompt": "Write a function.\nThen test it.",
    "systemPrompt": "Be brief.",
    "extension": "More.",
    "model": "claude-sonnet",
    "agent": {
        "spec": {"type": "claude", "permissionMode": "plan", "onBedrock": False},
        "version": "2.1.0",
        "files": {"script.json": "ab" * 32},
        "environment": {"PATH": "cd" * 32, "ANTHROPIC_BASE_URL": "ef" * 32},
    },
    "permissions": {"allow": ["Bash(git *)"], "deny": [], "otherwise": "deny"},
    "confinement": {"profile": "workspace", "connect": [443]},
    "confinementLevel": "namespace",
    "tools": [True, False, True],
    "rig": {"tools": "12" * 32},
    "ignoresRigFailures": False,
    "idleSeconds": 600.0,
    "hankBudget": {"maxDollars": 10.0, "maxTimeSeconds": 600.0},
    "maxCost": 2.5,
    "maxTime": 100.0,
    "conversation": "34" * 32,
    "commandEnvironment": {"HOME": "56" * 32, "FOO": "78" * 32},
    "tree": "9a" * 20,
    "modes": "de" * 32,
    "patterns": ["src/**", "!src/tmp"],
    "data": "bc" * 32,
    "version": 1,
}


def inputs(value: Any = INPUTS) -> CodonInputs:
    return msgspec.convert(value, CodonInputs)


Place = tuple[str | int, ...]


def places(value: Any, above: Place = ()) -> list[Place]:
    """Return where every value below one is, containers included."""
    found: list[Place] = []
    children: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        children = list(value.items())
    elif isinstance(value, list):
        children = list(enumerate(value))

    for name, child in children:
        found += [(*above, name), *places(child, (*above, name))]

    return found


def other(value: Any, chance: random.Random) -> Any:
    """Return a different value of a similar kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return chance.choice([value + 1, value * 2 + 1, value + 0.5, max(0, value - 1)])
        case str():
            return other_text(value, chance)
        case list():
            return other_list(value, chance)
        case dict():
            return other_dict(value, chance)
        case _:
            return chance.choice(["x", 1, True, {}, []])


def other_text(text: str, chance: random.Random) -> str:
    at = chance.randrange(len(text) + 1)
    made = chance.choice([" ", "\n", "x", "\u00e9", "e\u0301", "\udc80", "\0", '"', "\\", ","])
    word = chance.choice(["fresh", "abort", "ignore", "deny", "allow", "complete", "readonly"])
    return chance.choice(
        [text[:at] + made + text[at:], text[:at] + text[at + 1 :], text.swapcase(), word, ""]
    )


def other_list(items: list[Any], chance: random.Random) -> list[Any]:
    match chance.choice(["drop", "double", "reverse", "join"]):
        case "drop":
            return items[1:]
        case "double":
            return [*items, *items[-1:]]
        case "reverse":
            return items[::-1]
        case _:
            return [",".join(map(str, items))]


def other_dict(items: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    if not items:
        return {"x": "y"}

    name = chance.choice(list(items))
    rest = {key: value for key, value in items.items() if key != name}
    match chance.choice(["drop", "rename", "swap"]):
        case "drop":
            return rest
        case "rename":
            return {**rest, f"{name}x": items[name]}
        case _:
            names = list(items)
            return dict(zip(names, [items[key] for key in (*names[1:], names[0])], strict=True))


def mutated(
    part: dict[str, Any],
    chance: random.Random,
    rest: dict[str, Any] | None = None,
    codon: dict[str, Any] | None = None,
) -> CodonInputs | None:
    """Change a part of the inputs at one or two random places; None if the result is impossible."""
    value = copy.deepcopy(part)
    for _ in range(chance.choice([1, 1, 1, 2])):
        place = chance.choice(places(value))
        parent = value
        for name in place[:-1]:
            parent = parent[name]  # type: ignore[index]

        if chance.random() < 0.1 and isinstance(parent, dict):
            parent[place[-1]] = None  # type: ignore[index]
        else:
            parent[place[-1]] = other(parent[place[-1]], chance)  # type: ignore[index]

    try:
        if codon is not None and isinstance(value.get("codon"), dict):
            value = value | {"codon": codon | value["codon"]}

        return inputs((rest or {}) | value)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return None


def what_matters(each: CodonInputs) -> str:
    """Return the inputs without the fields that may differ, in an encoding of its own."""
    value = msgspec.to_builtins(each)
    for name in NOT_KEYED:
        value["codon"].pop(name, None)

    return repr(sorted(flat(value)))


def flat(value: Any, above: Place = ()) -> list[tuple[str, str]]:
    if isinstance(value, dict):
        kept = [item for key, child in value.items() for item in flat(child, (*above, key))]
        return [(repr(above), "dict"), *kept]

    if isinstance(value, list | tuple):
        kept = [item for i, child in enumerate(value) for item in flat(child, (*above, i))]
        return [(repr(above), "list"), *kept]

    return [(repr(above), repr(value))]


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.full)])
def test_random_mutations_change_the_key_exactly_if_they_can_matter(
    count: int, tally: Tally
) -> None:
    """Of 10,000 random changes of all fields, no two different inputs have the same key.

    And equal inputs always have the same one: also after a way through JSON, and with other
    comments or names of prompt files.
    """
    chance, keys = random.Random(21), {what_matters(inputs()): reuse_key(inputs())}
    made = changed = 0
    touched: set[str] = set()
    while made < count:
        each = mutated(INPUTS, chance)
        if each is None:
            continue

        made += 1
        key, matters = reuse_key(each), what_matters(each)
        assert keys.setdefault(matters, key) == key
        assert reuse_key(inputs(msgspec.to_builtins(each))) == key
        changed += key != reuse_key(inputs())
        touched |= {
            name for name in CodonInputs.__struct_fields__
            if getattr(each, name) != getattr(inputs(), name)
        }  # fmt: skip

    assert len(set(keys.values())) == len(keys), "two different inputs have the same key"
    assert touched == set(CodonInputs.__struct_fields__), "every field was changed"
    assert changed > count * 0.8
    tally.add("reuse keys", rounds=made, of="mutations, 0 stale")


@pytest.mark.parametrize("name", CodonInputs.__struct_fields__)
def test_every_field_is_in_the_key(name: str) -> None:
    """Each single field counts, so that none is left out of the hash by mistake."""
    chance, key = random.Random(name), reuse_key(inputs())
    field = next(f for f in msgspec.structs.fields(CodonInputs) if f.name == name).encode_name
    for _ in range(MOST_TRIES):
        each = mutated({field: INPUTS[field]}, chance, INPUTS)
        if each is not None and what_matters(each) != what_matters(inputs()):
            assert reuse_key(each) != key
            return

    raise AssertionError(f"no other value of {name} was found")


@pytest.mark.parametrize("name", [f.encode_name for f in msgspec.structs.fields(Codon)])
def test_every_field_of_a_codon_is_in_the_key_or_known_not_to_be(name: str) -> None:
    """A field that is added to codons is in the key by default."""
    chance = random.Random(name)
    if name == "sentinels":
        return  # A codon with sentinels is never keyed.

    codon: dict[str, Any] = {"appendSystemPromptFile": "c.md"} | CODON
    for _ in range(MOST_TRIES):
        each = mutated({"codon": {name: codon[name]}}, chance, INPUTS, codon)
        whole = inputs(INPUTS | {"codon": codon})
        if each is not None and each.codon != whole.codon:
            assert (reuse_key(each) == reuse_key(whole)) == (name in NOT_KEYED)
            return

    raise AssertionError(f"no other value of {name} was found")


# --- whether ------------------------------------------------------------------------------------


def a_codon(**fields: Any) -> Codon:
    return Codon(id="one", name="One", model="m", continuation_mode="fresh", **fields)


@pytest.mark.parametrize(
    ("own", "hank", "chosen", "default", "after", "expected"),
    [
        (None, None, None, False, None, False),
        (None, None, None, True, None, True),
        (None, True, None, False, None, True),
        (True, False, None, False, None, True),
        (None, True, False, True, None, False),
        (True, None, False, False, None, False),
        (None, None, True, False, None, True),
        (False, True, True, True, None, False),
        (None, None, None, False, "zero", True),
        (None, None, False, False, "zero", True),
        (False, None, None, False, "zero", False),
        (True, True, True, True, "one", False),
    ],
)
def test_who_decides_about_reuse(
    own: bool | None,
    hank: bool | None,
    chosen: bool | None,
    default: bool,
    after: str | None,
    expected: bool,
) -> None:
    """A codon's refusal beats all; then the run's request, the command line, codon, hank, file."""
    found = is_wanted(
        CodonId("one"),
        a_codon(reuse=own),
        Overrides(reuse=hank),
        ReuseSettings(chosen, default),
        None if after is None else CodonId(after),
    )
    assert found is expected


def test_codons_that_do_more_than_leave_files_are_never_reused() -> None:
    """Sentinels, files outside the work tree, and an open confinement prevent reuse."""
    watched = a_codon(sentinels=(SentinelEntry(sentinel_config="s.json"),))
    assert obstacle(a_codon(), Confinement(), is_enforced=True) is None
    assert obstacle(watched, Confinement(), is_enforced=True) is not None
    for wished in (
        Confinement(extra_read=("/etc",)),
        Confinement(extra_write=("/tmp/x",)),
        Confinement(profile="none"),
    ):
        assert obstacle(a_codon(), wished, is_enforced=True) is not None


def test_results_that_were_cut_short_or_held_up_are_not_offered() -> None:
    """Only a plain success is taken over."""
    plain = completed("one", 1)
    assert isinstance(plain, CompletedCodon)
    plain = msgspec.structs.replace(plain, exit_code=0, result_message_received=True)
    assert is_offered(plain)
    exceeded = BudgetExceeded(currency="cost", limit=1, used=2)
    for changes in (
        {"exit_code": 1},
        {"result_message_received": False},
        {"context_exceeded": True},
        {"budget_exceeded": exceeded},
        {"waited_ms": 1},
        {"warnings": ("refused",)},
    ):
        assert not is_offered(msgspec.structs.replace(plain, **changes))


def test_the_newest_result_of_any_timeline_is_found_first() -> None:
    """All runs are searched, also abandoned ones, from the newest to the oldest."""
    old, new = (
        msgspec.structs.replace(completed("one", number), reuse_key="key") for number in (1, 2)
    )
    strange = msgspec.structs.replace(completed("one", 3), reuse_key="another")
    state = msgspec.structs.replace(
        EMPTY_STATE, runs=(a_run("run-2", codons=(new, strange)), a_run("run-1", codons=(old,)))
    )
    found = [each.reused.run_id for each in candidates(state, "key")]
    assert found == [RunId("run-2"), RunId("run-1")]


@pytest.mark.parametrize(
    ("line", "stranger"),
    [
        ("mkdir -p out && cp -r template/* out/", None),
        ("for f in *.csv; do sed -i s/a/b/ $f; done", None),
        ("# as before\necho x > y", None),
        ("npm ci", "npm"),
        ("cp a b; curl -s https://x.example > data", "curl"),
        ("echo $(wget -qO- x)", "wget"),
        ('sh -c "cd x && git clone y"', "git"),
        ("sudo -u x cat y", "x"),
        ("./setup.sh", "./setup.sh"),
        ("eval $LINE", "$LINE"),
        ("cat 'unmatched", "cat 'unmatched"),
        ("date > stamp", "date"),
    ],
)
def test_a_rig_that_may_read_the_network_cannot_be_compared(
    line: str, stranger: str | None
) -> None:
    """Only programs that are known to read none are; closed ports make all of them comparable."""
    rigged = a_codon(rig_setup=(RigCommand(command=CommandSpec(run=line)),))
    found = obstacle(rigged, Confinement(), is_enforced=True)
    assert (found is None) == (stranger is None)
    assert stranger is None or (found is not None and f"its rig runs {stranger!r}" in found)
    closed = Confinement(connect=())
    assert obstacle(rigged, closed, is_enforced=True) is None
    assert obstacle(rigged, closed, is_enforced=False) == found


def test_differences_are_described() -> None:
    """Each input has a short hash, and the name of one that differs is a phrase."""
    old = digests_of(inputs())
    new = digests_of(
        inputs(
            INPUTS
            | {
                "prompt": "Another",
                "tree": "0" * 40,
                "codon": CODON | {"checks": [], "env": {"API_KEY": "sk-5678", "MODE": "fast"}},
                "agent": INPUTS["agent"] | {"version": "2.2.0"},
                "maxCost": None,
            }
        )
    )
    assert differences(old, old) == ()
    assert set(differences(old, new)) == {
        "its prompt",
        "tracked files",
        "its checks in the hank",
        "its env.API_KEY in the hank",
        "the version of its agent",
        "--max-cost",
    }


def test_hashes_of_variables_are_too_short_to_test_guesses_at_a_secret() -> None:
    """A value may be a password: its hash alone has 16 bits, and is not of the value alone."""
    found = digests_of(inputs())
    short = {name for name, digest in found.items() if len(digest) == 4}
    assert short == {
        "codon.env.API_KEY",
        "codon.env.MODE",
        "agent.environment.PATH",
        "agent.environment.ANTHROPIC_BASE_URL",
        "commandEnvironment.HOME",
        "commandEnvironment.FOO",
    }
