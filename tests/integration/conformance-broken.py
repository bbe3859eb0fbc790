#!/usr/bin/env python3
# timeout 180
"""The conformance suite can fail: every case is shown a provider that breaks its promise, and must
say so; the same provider without the fault passes. A case without a fault is named here, with why."""
import concurrent.futures
import json
import os
import subprocess
import sys

BUILD = os.path.abspath(os.environ.get("PAI_BUILD", "build/debug"))
SUITE = f"{BUILD}/pai-conformance"
SWEEP = "run/leaves_nothing_behind"
WORKERS = 8  # nearly all of a case is waiting

# plugin: {fault: cases that must fail}
FAULTS = {
    "broken_lifecycle": {
        "no_incarnation": "lifecycle/create_gives_an_identity",
        "one_sandbox_for_all": "lifecycle/two_creates_are_two_sandboxes",
        "connect_makes_another": "lifecycle/connect_reaches_the_same_files",
        "connect_fails_when_gone": "lifecycle/connect_to_nothing_is_null kill/connect_is_null",
        "free_kills": "lifecycle/freeing_a_handle_does_not_kill",
        "claims_durable": "lifecycle/closing_the_provider_does_not_kill",
        "list_ignores_the_filter": "list/filters_by_metadata",
        "list_drops_metadata": "list/tells_what_was_given",
        "list_creates": "run/leaves_nothing_behind",
        "probe_creates": "probe/provisions_nothing",
        "probe_cached": "probe/answers_afresh",
        "ttl_ignored": "ttl/an_expired_sandbox_is_gone",
        "keep_alive_does_nothing": "ttl/keep_alive_extends",
        "keep_alive_sets": "ttl/keep_alive_never_shortens"
                           " ttl/keep_alive_gives_no_deadline_to_one_without",
        "write_after_kill_succeeds": "kill/every_call_is_not_found",
        "kill_does_nothing": "kill/connect_is_null kill/it_is_not_listed",
        "list_has_the_killed": "kill/it_is_not_listed",
        "second_kill_fails": "kill/twice_is_fine",
        "kill_kills_all": "kill/leaves_the_others_alone",
        "killed_command_succeeds": "kill/ends_a_running_command",
        "paused_is_listed_as_running": "pause/is_listed_and_connect_resumes",
        "paused_survives_kill": "pause/a_paused_sandbox_can_be_killed",
        "network_and_template_ignored": "policy/network_full_is_as_claimed"
                                        " policy/network_allowlist_is_as_claimed"
                                        " policy/an_unknown_template_is_refused",
        "network_none_not_enforced": "policy/network_none_is_enforced_or_refused",
        "claims_full_network": "policy/network_full_is_as_claimed",
        "key_ignored": "binding/one_key_is_one_sandbox",
        "one_key_for_all": "binding/other_keys_are_other_sandboxes",
        "key_with_the_metadata": "binding/the_rest_of_the_input_is_ignored",
        "key_stays_with_the_killed": "binding/after_kill_the_key_is_free",
        "paused_loses_its_key": "binding/a_paused_sandbox_keeps_its_key",
        "creators_race": "binding/concurrent_creators_get_one",
        "claims_processes": "binding/creators_in_several_processes_get_one",
    },
    "broken_commands": {
        "stdout_lost": "commands/stdout_and_exit_0",
        "exit_status_lost": "commands/stderr_and_exit_3",
        "missing_program_is_1": "commands/missing_program_is_127",
        "signal_is_0": "commands/a_signal_is_128_and_its_number",
        "output_ends_at_nul": "commands/bytes_pass_unchanged",
        "output_cut": "commands/a_mebibyte_of_output_is_exact",
        "chunks_come_twice": "commands/chunks_equal_the_result",
        "late_chunks_lost": "commands/chunks_of_much_output_equal_the_result",
        "chunks_come_at_the_end": "commands/chunks_come_while_it_runs",
        "captures_always": "commands/without_capture_only_chunks_come",
        "cwd_ignored": "commands/cwd_is_the_workspace_or_what_was_given",
        "runs_elsewhere_without_cwd": "commands/a_missing_cwd_is_an_error_and_nothing_runs",
        "env_ignored": "commands/env_of_a_command_is_its_own",
        "create_env_ignored": "commands/env_of_create_is_in_every_command",
        "host_environment_leaks": "commands/the_hosts_environment_stays_outside",
        "timeout_without_its_limit": "commands/a_timeout_is_an_error_with_its_limit",
        "timeout_is_waited_for": "commands/a_timeout_not_reached_changes_nothing",
        "timeout_leaves_the_group": "commands/a_timeout_kills_the_whole_group",
        "cancel_is_unavailable": "commands/cancel_ends_a_command",
        "cancel_leaves_the_group": "commands/cancel_kills_the_whole_group",
        "deadline_is_command_timeout": "commands/a_deadline_ends_a_command",
        "limit_ignored": "commands/output_past_its_limit_is_an_error"
                         " commands/endless_output_is_ended_by_its_limit",
        "limit_is_one_less": "commands/output_at_its_limit_is_whole",
        "limit_is_per_stream": "commands/both_streams_share_one_limit",
        "one_at_a_time": "commands/two_commands_run_at_once",
        "files_are_apart": "commands/files_are_the_same_on_both_sides",
        "commands_not_claimed": "commands/without_the_claim_run_is_refused",
    },
    "broken_files": {
        "line_ends_translated": "files/text_comes_back",
        "high_bits_lost": "files/every_byte_comes_back",
        "empty_is_missing": "files/an_empty_file_comes_back",
        "read_cut": "files/a_mebibyte_comes_back",
        "parents_not_made": "files/parents_are_made",
        "old_tail_stays": "files/a_shorter_text_replaces_the_whole",
        "names_with_newlines_dropped": "files/odd_names_are_names",
        "long_names_refused": "files/a_name_of_255_bytes_is_a_name",
        "outside_is_inside": "files/dotdot_leaves_the_workspace",
        "missing_is_an_error": "files/a_missing_file_is_not_found",
        "directory_is_missing": "files/a_directory_is_no_file",
        "max_bytes_off_by_one": "files/max_bytes_is_a_limit",
        "max_bytes_0_is_no_limit": "files/max_bytes_0_takes_the_empty_file_only",
        "types_lost": "files/list_dir_tells_names_and_types",
        "missing_directory_is_empty": "files/list_dir_of_what_is_none",
        "workspace_is_missing": "files/the_workspace_is_a_directory",
        "replaced_in_two_steps": "files/a_reader_sees_the_old_or_the_new",
        "replaced_by_a_new_file": "files/replacing_keeps_the_mode files/a_link_is_followed",
        "crashes": "files/text_comes_back",
        "exits": "files/text_comes_back",
        "hangs": "files/text_comes_back",
    },
}
# What provider.c guarantees for every provider: no slot can break it (tests/unit/provider does).
BY_THE_WRAPPERS = {
    "input/forbidden_create_input",
    "input/forbidden_calls",
    "input/a_call_that_is_over_is_not_made",
    "files/relative_paths_are_below_the_workspace",
    "pause/without_the_claim_it_is_unsupported",
}
# How the runner words what is not a failed check.
WORDING = {"crashes": "crashed: signal 6", "exits": "ended the process", "hangs": "still running"}
# Cases that memory by itself skips: shown to pass here by what the fault needs anyway.
SKIPPED_WHOLE = {
    "lifecycle/closing_the_provider_does_not_kill",
    "binding/creators_in_several_processes_get_one",
    "commands/a_signal_is_128_and_its_number",
    "commands/without_the_claim_run_is_refused",
}


def run(plugin, fault, case):
    backend = f"{os.environ['PAI_TMP']}/backend-{plugin}-{fault}"
    open(backend, "w").close()
    # The sweep at the end of a run is in no table: it comes with every run.
    name = "files/text_comes_back" if case == SWEEP else case
    argv = [SUITE, "--json", "--timeout", "1" if fault == "hangs" else "8", "--filter", name,
            "--break", f"rm {backend}", "--mend", f"touch {backend}",
            "-o", f"fault={fault}", f"{BUILD}/tests/{plugin}.so"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120,
                          env={**os.environ, "PAI_TEST_BACKEND": backend})
    if done.returncode not in (0, 1):
        return {"result": "error", "message": done.stderr.strip()}
    results = {r["case"]: r for r in map(json.loads, done.stdout.splitlines())}
    return results.get(case, {"result": "absent", "message": done.stdout})


def check_caught(plugin, fault, case):
    got = run(plugin, fault, case)
    wording = WORDING.get(fault, "")
    if got["result"] != "fail" or wording not in got.get("message", ""):
        return f"{fault} by {case}: {got['result']}: {got.get('message', '')}"
    return None


def check_whole(plugin, case):
    fault = "probe_honest" if case == "probe/answers_afresh" else "none"
    wanted = "skip" if case in SKIPPED_WHOLE else "pass"
    got = run(plugin, fault, case)
    if got["result"] != wanted:
        return f"{case}: {got['result']}, expected {wanted}: {got.get('message', '')}"
    return None


def main():
    listed = set(subprocess.run([SUITE, "--list", "--suite", "provider"], check=True,
                                capture_output=True, text=True).stdout.split())
    pairs = [(p, f, c) for p, faults in FAULTS.items() for f, cases in faults.items()
             for c in cases.split()]
    proven = {c for _, _, c in pairs}
    failed = 0
    for case in sorted(listed - proven - BY_THE_WRAPPERS):
        print(f"not ok {case}: no broken provider shows that it can fail")
        failed += 1
    for case in sorted((proven | BY_THE_WRAPPERS) - listed - {SWEEP}):
        print(f"not ok {case}: there is no such case")
        failed += 1
    jobs = {}
    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for plugin, fault, case in pairs:
            jobs[pool.submit(check_caught, plugin, fault, case)] = f"{fault} is caught by {case}"
        for plugin, case in sorted({(p, c) for p, _, c in pairs}):
            if case != SWEEP:
                jobs[pool.submit(check_whole, plugin, case)] = f"whole: {case}"
        for job in concurrent.futures.as_completed(jobs):
            why = job.result()
            failed += why is not None
            print(f"not ok {jobs[job]}: {why}" if why else f"ok {jobs[job]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
