"""The whole list of attacks, and where each claim about them is made.

Many claims are beside the code that they test. This table shows all of them at once, and fails when
a renamed test drops out of it.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
DOOR = "server/transport/test_http_handler.py"
PAGES = "server/transport/test_pages.py"
LISTENER = "server/transport/test_listener.py"
CROWD = "server/transport/test_many_clients.py"
LOAD = "server/hank/test_load.py"
HAZARDS = "server/checkpoints/test_hazards.py"

LIST: dict[str, list[tuple[str, str]]] = {
    "Host x Origin x token": [
        (DOOR, "test_host_origin_and_token_are_checked_before_the_upgrade"),
        (DOOR, "test_two_hosts_or_two_origins_are_one_too_many"),
        ("intruders/test_before_the_handshake.py", "test_a_web_page_gets_in_from_nowhere"),
        (
            "intruders/test_before_the_handshake.py",
            "test_a_strange_request_is_turned_away_and_leaves_no_trace",
        ),
    ],
    "markup, scripts and strange names in the page": [
        (PAGES, "test_nothing_is_written_into_the_page_but_by_the_library_of_views"),
        (PAGES, "test_every_file_is_served_as_what_it_is"),
        (PAGES, "test_no_other_file_can_be_asked_for"),
    ],
    "DNS rebinding": [
        (
            "intruders/test_before_the_handshake.py",
            "test_a_name_that_was_bound_to_loopback_reaches_nothing",
        ),
    ],
    "wrong, late and missing authentication": [
        (LISTENER, "test_a_wrong_token_in_the_handshake_ends_with_1008"),
        (LISTENER, "test_a_client_without_a_handshake_is_disconnected"),
        (
            "server/transport/test_exposure.py",
            "test_an_open_port_without_address_tls_or_token_is_refused",
        ),
        ("intruders/test_before_the_handshake.py", "test_before_the_token_nothing_is_disclosed"),
        ("intruders/test_before_the_handshake.py", "test_a_wrong_token_gets_only_its_refusal"),
    ],
    "a crowd that asks for all history and reads nothing": [
        (
            "intruders/test_journal_readers.py",
            "test_a_crowd_that_asks_for_everything_and_reads_nothing_costs_little",
        ),
        (
            "intruders/test_journal_readers.py",
            "test_those_that_read_beside_a_crowd_get_each_event_once",
        ),
    ],
    "roles that a client claims": [
        (LISTENER, "test_the_role_comes_from_the_token"),
        ("intruders/test_roles.py", "test_a_mode_that_there_is_not_is_refused"),
        ("intruders/test_roles.py", "test_a_second_handshake_raises_no_role"),
    ],
    "readonly, every command": [
        (
            "intruders/test_roles.py",
            "test_a_viewer_may_read_and_is_refused_every_other_command",
        ),
        ("intruders/test_roles.py", "test_a_viewer_of_hankweaves_dialect_writes_no_event"),
    ],
    "an agent that sends more than its tools do": [
        (
            "intruders/test_roles.py",
            "test_an_agent_may_do_what_its_tools_do_and_nothing_else",
        ),
        ("intruders/test_roles.py", "test_an_agents_socket_is_for_its_codon_alone"),
    ],
    "an agent that leaves its work tree, or attacks its server": [
        (
            "intruders/test_confined_agents.py",
            "test_no_attack_of_an_agent_or_command_reaches_the_server_or_the_user",
        ),
        (
            "intruders/test_confined_agents.py",
            "test_at_the_level_of_landlock_the_state_of_a_project_is_out_of_reach",
        ),
        ("acceptance/test_confinement.py", "test_an_agent_changes_its_work_tree_and_nothing_else"),
        ("agents/test_confinement.py", "test_a_real_agent_gets_nowhere_with_any_attack"),
    ],
    "malformed and random frames": [
        (
            "intruders/test_frames.py",
            "test_each_malformed_frame_ends_its_own_connection_with_its_code",
        ),
        ("intruders/test_frames.py", "test_random_bytes_end_connections_and_nothing_else"),
        ("server/transport/test_bad_input.py", "test_bad_input_is_refused_with_a_code_and_a_path"),
    ],
    "compression bomb": [("intruders/test_frames.py", "test_no_compression_is_agreed_to")],
    "half-open handshakes": [
        ("intruders/test_frames.py", "test_two_hundred_half_open_handshakes_block_no_client"),
        (LISTENER, "test_more_connections_than_allowed_are_cut_off"),
    ],
    "floods": [
        ("intruders/test_frames.py", "test_ten_thousand_messages_a_second_are_mostly_refused"),
        (
            "intruders/test_frames.py",
            "test_a_flood_of_pings_that_are_never_read_costs_no_memory",
        ),
        ("intruders/test_secrets.py", "test_no_megabyte_takes_redaction_long"),
        ("intruders/test_hostile_ignores.py", "test_no_line_and_name_take_long"),
        ("server/worktree/test_gitignore.py", "test_lines_hide_what_they_hide_for_git"),
    ],
    "JSON hazards": [
        ("protocol/test_json_hazards.py", "test_what_is_no_json_is_refused_as_such"),
        ("protocol/test_json_hazards.py", "test_a_full_frame_is_read_once"),
        (
            "intruders/test_json_on_the_wire.py",
            "test_every_hazard_is_answered_and_the_log_stays_readable",
        ),
    ],
    "a dead reader beside fifty": [
        ("intruders/test_slow_and_lost.py", "test_a_dead_reader_delays_none_of_fifty"),
        ("intruders/test_slow_and_lost.py", "test_a_dead_reader_costs_little_memory"),
        ("intruders/test_slow_and_lost.py", "test_a_peer_that_vanished_is_noticed"),
        (CROWD, "test_a_slow_reader_is_closed_with_1013_after_a_stream_without_gaps"),
        (CROWD, "test_one_frame_that_is_not_taken_in_time_is_enough"),
    ],
    "sinceSeq under load": [
        ("intruders/test_slow_and_lost.py", "test_who_is_cut_off_again_and_again_misses_nothing"),
        (CROWD, "test_a_late_joiner_gets_all_events_once_while_more_happen"),
        (
            "protocol/client/test_client.py",
            "test_broken_connections_leave_neither_gap_nor_duplicate",
        ),
    ],
    "planted secrets": [
        (
            "intruders/test_secrets.py",
            "test_twenty_secrets_are_only_where_they_are_documented_to_be",
        ),
        (
            "server/transport/test_traffic_log.py",
            "test_secrets_are_taken_out_and_json_stays_json",
        ),
        ("intruders/test_planted_secrets.py", "test_no_planted_secret_reaches_the_disk"),
        (
            "intruders/test_planted_secrets.py",
            "test_an_agent_gets_the_secrets_that_the_record_lacks",
        ),
    ],
    "file modes": [
        ("intruders/test_secrets.py", "test_everything_of_ours_is_for_its_owner_alone"),
        (LISTENER, "test_tokens_are_for_the_owner_and_die_with_the_server"),
    ],
    "paths and shas that escape": [
        ("intruders/test_escapes.py", "test_no_path_leads_out_of_the_work_tree"),
        ("intruders/test_escapes.py", "test_a_sha_is_a_sha"),
        ("intruders/test_escapes.py", "test_a_link_is_read_as_a_link"),
        (HAZARDS, "test_no_byte_leaves_the_tree_while_a_folder_flips_to_a_link"),
        (HAZARDS, "test_hooks_and_monitors_never_run"),
        (
            "acceptance/test_branches.py",
            "test_what_cannot_be_done_is_refused_and_nothing_is_touched",
        ),
    ],
    "texts that forge": [("intruders/test_escapes.py", "test_no_text_forges_a_line")],
    "an archive, rig or hank reference that leaves its directory": [
        (LOAD, "test_a_reference_stays_in_the_hanks_directory_and_names_a_file"),
        (LOAD, "test_a_rig_source_is_a_plain_tree_of_the_hank"),
        (LOAD, "test_a_rig_target_is_a_place_within_the_work_tree"),
        ("server/hank/test_golden.py", "test_a_malformed_hank_yields_exactly_its_fault"),
        ("server/worktree/test_rigs.py", "test_a_target_out_of_bounds_is_refused"),
        (
            "server/worktree/test_rigs.py",
            "test_a_link_on_the_way_to_the_target_is_not_followed",
        ),
    ],
    "fuzz: codec, journal reader, hank loader": [
        ("intruders/test_fuzz.py", "test_the_codec_reads_or_refuses"),
        ("intruders/test_fuzz.py", "test_a_journal_is_opened_or_reported_as_corrupt"),
        ("intruders/test_fuzz.py", "test_a_hank_is_loaded_or_its_problems_are_reported"),
        ("intruders/test_fuzz.py", "test_a_prompt_is_read_or_its_fault_is_reported"),
        ("intruders/test_fuzz.py", "test_a_reader_holds_under_a_guided_fuzzer"),
        (LOAD, "test_any_value_in_any_place_is_loaded_or_reported"),
    ],
    "leaving a fence, at each level": [
        ("intruders/test_confinement.py", "test_no_attack_gets_out"),
        ("intruders/test_confinement.py", "test_the_attacks_work_without_a_fence"),
        ("intruders/test_confinement.py", "test_a_program_works_unmodified"),
        ("server/agents/test_confined_agents.py", "test_a_confined_agent_dies_with_its_keeper"),
        ("server/confinement/test_probe.py", "test_a_planted_link_opens_nothing"),
    ],
}


@cache
def names_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, functions))


@pytest.mark.parametrize("attack", LIST)
def test_each_attack_is_tried_somewhere(attack: str) -> None:
    """Each test that the table names exists."""
    assert LIST[attack]
    for file, name in LIST[attack]:
        assert name in names_in(file), f"{file} has no {name}"


def test_no_test_of_this_folder_is_left_out() -> None:
    """Each test of this folder is in the table, except those that other tests represent."""
    named = {name for claims in LIST.values() for file, name in claims if file.startswith("intr")}
    here = {
        name
        for path in Path(__file__).parent.glob("test_*.py")
        if path != Path(__file__)
        for name in names_in(f"intruders/{path.name}")
        if name.startswith("test_")
    }
    assert here - named <= {
        "test_every_field_that_names_a_path_or_a_checkpoint_is_tried",
        "test_a_transition_is_read_or_refused",
        "test_reading_a_journal_changes_nothing",
    }
