#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "execshim/mcp/lane.h"

#define MOST 40

/* Calls named by letters: upper case runs alone. */
static struct pai_lane lane;
static struct pai_lane_call calls[MOST];
static char names[MOST + 1];
static size_t count;

static void reset(void)
{
	lane = (struct pai_lane){.first = NULL};
	memset(calls, 0, sizeof(calls));
	memset(names, 0, sizeof(names));
	count = 0;
}

static void add(const char *letters)
{
	for (; *letters; letters++) {
		calls[count].is_sequential = *letters >= 'A' && *letters <= 'Z';
		names[count] = *letters;
		pai_lane_add(&lane, &calls[count++]);
	}
}

static char name_of(const struct pai_lane_call *c)
{
	return names[c - calls];
}

/* Those that begin now, then those that are stopped behind a '/'. */
static const char *next(void)
{
	static char text[2 * MOST + 2];
	char stopped[MOST + 1] = "";
	size_t n = 0, s = 0;
	struct pai_lane_call *c;

	while ((c = pai_lane_next(&lane))) {
		if (c->after) {
			stopped[s++] = name_of(c);
		} else {
			text[n++] = name_of(c);
		}
	}
	text[n] = '\0';
	stopped[s] = '\0';
	if (s) {
		(void)snprintf(text + n, sizeof(text) - n, "/%s", stopped);
	}
	return text;
}

static void end(char name, bool stops)
{
	pai_lane_remove(&lane, &calls[strchr(names, name) - names], stops);
}

Test(mcp_lane, what_may_runs_together_and_the_rest_alone_in_order)
{
	reset();
	add("abCDef");
	cr_assert_str_eq(next(), "ab");
	end('b', false);
	cr_assert_str_eq(next(), "");
	end('a', false);
	cr_assert_str_eq(next(), "C");
	cr_assert_str_eq(next(), "");
	end('C', false);
	cr_assert_str_eq(next(), "D");
	end('D', false);
	cr_assert_str_eq(next(), "ef");
}

Test(mcp_lane, no_more_than_so_many_at_once)
{
	reset();
	add("abcdefghijklmnopqrst");
	cr_assert_str_eq(next(), "abcdefghijklmnop");
	end('c', false);
	cr_assert_str_eq(next(), "q");
}

Test(mcp_lane, what_fails_stops_what_waits_behind_it)
{
	reset();
	add("Axb");
	cr_assert_str_eq(next(), "A");
	add("C");
	end('A', true);
	cr_assert_str_eq(next(), "/xbC");
	cr_assert_eq(calls[1].after, 1);
	cr_assert_eq(calls[3].after, 1);
	cr_assert_null(lane.first);
	/* The step is over. */
	add("D");
	cr_assert_str_eq(next(), "D");
	cr_assert_eq(calls[4].number, 1);
	cr_assert_eq(lane.step, 2);
}

Test(mcp_lane, within_a_step_any_failure_stops)
{
	reset();
	add("AbCd");
	cr_assert_str_eq(next(), "A");
	end('A', false);
	cr_assert_str_eq(next(), "b");
	end('b', true);
	cr_assert_str_eq(next(), "/Cd");
	cr_assert_eq(calls[2].after, 2);
}

Test(mcp_lane, what_ran_together_before_a_step_is_none_of_it)
{
	reset();
	add("a");
	cr_assert_str_eq(next(), "a");
	add("Bc");
	end('a', true);
	cr_assert_str_eq(next(), "B");
	end('B', true);
	cr_assert_str_eq(next(), "/c");
}

Test(mcp_lane, one_that_waits_can_leave)
{
	reset();
	add("ABc");
	cr_assert_str_eq(next(), "A");
	end('B', false);
	end('A', false);
	cr_assert_str_eq(next(), "c");
	end('c', true);
	end('c', true); /* it has left */
	cr_assert_null(lane.first);
}

Test(mcp_lane, what_comes_behind_one_that_was_told_to_end_is_of_another_step)
{
	reset();
	add("Ab");
	cr_assert_str_eq(next(), "A");
	pai_lane_stop(&lane, &calls[0]);
	cr_assert_str_eq(next(), "/b");
	add("Cd");
	cr_assert_str_eq(next(), "");
	end('A', true);
	cr_assert_str_eq(next(), "C");
	cr_assert_eq(calls[2].number, 1);
	cr_assert_eq(calls[3].step, 2);
}
