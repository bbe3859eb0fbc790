#!/bin/bash
# The session suite: whole over memory and local, and each fault of a provider that the manager
# can't hide is caught by the case that names it.
# fast
# timeout 120
set -u
status=0
export XDG_STATE_HOME=$PAI_TMP/state
mkdir -p "$XDG_STATE_HOME"
suite=("$PAI_BUILD/pai-conformance" --suite session --timeout 8)
plugin=$PAI_BUILD/tests/broken_lifecycle.so

report() { # ok|not ok, what
	echo "$1 $2"
	[ "$1" = ok ] || status=1
}

whole() { # name, arguments...
	local name=$1 out
	shift
	if out=$("${suite[@]}" "$@" 2>&1); then
		report ok "the session suite over $name"
	else
		echo "$out" | grep -A2 '^not ok' | sed 's/^/# /'
		report "not ok" "the session suite over $name"
	fi
}
whole memory memory
whole local -o "root=$PAI_TMP/local" local
whole "a plugin without a fault" -o fault=none "$plugin"

caught() { # fault, case
	if "${suite[@]}" --filter "session/$2" -o "fault=$1" "$plugin" 2>/dev/null |
		grep -q "^not ok .*session/$2"; then
		report ok "$1 is caught by session/$2"
	else
		report "not ok" "$1 is caught by session/$2"
	fi
}
caught list_drops_metadata a_fresh_manager_finds_it_again
caught free_kills close_drains_and_never_kills
caught connect_makes_another lost_in_mid_call_recovers_once_and_says_so
caught connect_makes_another lost_twice_is_not_found
caught connect_makes_another work_before_a_reset_is_not_retried
caught kill_does_nothing a_verified_use_sees_a_loss_between_calls
caught list_has_the_killed reset_destroys_and_the_next_use_says_so
caught list_has_the_killed dispose_ends_the_held_handle_and_every_orphan
caught kill_kills_all dispose_leaves_other_keys
caught no_incarnation a_paused_one_is_resumed_by_use_alone
exit $status
