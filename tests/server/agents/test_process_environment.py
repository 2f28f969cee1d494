"""The environment of an agent."""

from __future__ import annotations

from hankweave_server.agents.process.environment import MARK, agent_environment


def compose(task, host: dict[str, str], **extra: str) -> dict[str, str]:
    return agent_environment(task, host, mark="m4rk", extra=extra)


def test_only_a_short_list_is_inherited(a_task) -> None:
    """Most of the daemon's environment, secrets included, is not passed on."""
    host = {"PATH": "/bin", "LC_TIME": "C", "AWS_SECRET": "x", "ANTHROPIC_API_KEY": "x", "LD_X": ""}
    composed = compose(a_task(), host)
    assert composed.keys() & host.keys() == {"PATH", "LC_TIME"}


def test_the_environment_describes_the_task(a_task) -> None:
    """Root, data, run, codon and model are always set; the session only if it is resumed."""
    task = a_task()
    composed = compose(task, {})
    assert composed == {
        "HANKWEAVE_AGENT_ROOT": str(task.work_tree),
        "HANKWEAVE_DATA_DIR": str(task.data_dir),
        "HANKWEAVE_RUN_ID": task.run_id,
        "HANKWEAVE_CODON_ID": "observe",
        "HANKWEAVE_MODEL": "test-model",
        "HANKWEAVE_NOTICES": str(task.notices_path),
        MARK: "m4rk",
    }
    resumed = compose(a_task(resume_session="s1"), {})
    assert resumed["HANKWEAVE_RESUME_SESSION"] == "s1"


def test_an_agent_gets_the_span_of_its_codon(a_task) -> None:
    """Only that: the server's own context, and where it exports to, stay with the server."""
    host = {"TRACEPARENT": "the-servers", "OTEL_EXPORTER_OTLP_HEADERS": "authorization=key"}
    assert compose(a_task(traceparent="the-codons"), host)["TRACEPARENT"] == "the-codons"
    assert not set(compose(a_task(), host)) & set(host)


def test_a_prefixed_variable_reaches_the_agent_without_its_prefix(a_task) -> None:
    """HANKWEAVE_X becomes X for the agent and overrides an inherited X; `unset` removes X."""
    host = {"PATH": "/bin", "TERM": "xterm", "HANKWEAVE_PATH": "/other", "HANKWEAVE_TERM": "unset"}
    composed = compose(a_task(), host)
    assert composed["PATH"] == "/other"
    assert "TERM" not in composed


def test_what_configures_or_opens_the_server_never_reaches_an_agent(a_task) -> None:
    """Tokens, settings and a foreign mark are not passed on under any name."""
    secrets = {
        "HANKWEAVE_TOKEN": "t0",
        "HANKWEAVE_SERVER_TOKEN": "t1",
        "HANKWEAVE_RUNTIME_PORT": "t2",
        "HANKWEAVE_SENTINEL_KEY": "t3",
        MARK: "t4",
        "HANKWEAVE_": "t5",
    }
    assert not set(secrets.values()) & set(compose(a_task(), secrets).values())


def test_the_codons_own_variables_win(a_task) -> None:
    """They override inherited, required and added variables; only the mark cannot be removed."""
    own = {"PATH": "mine", "KEY": "mine", "HANKWEAVE_MODEL": "mine", MARK: "mine"}
    composed = compose(a_task(environment=own), {"PATH": "/bin", "HANKWEAVE_KEY": "x"}, KEY="y")
    assert composed["PATH"] == composed["KEY"] == composed["HANKWEAVE_MODEL"] == "mine"
    assert composed[MARK] == "m4rk"
