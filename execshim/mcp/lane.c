#include "execshim/mcp/lane.h"

/* A step lasts as long as one of its sequential calls runs or waits, and it has not been stopped.
 */
static bool has_open_step(const struct pai_lane *l)
{
	for (const struct pai_lane_call *c = l->first; c; c = c->next) {
		if (c->is_sequential && c->step && !c->after) {
			return true;
		}
	}
	return false;
}

void pai_lane_add(struct pai_lane *l, struct pai_lane_call *c)
{
	struct pai_lane_call **end = &l->first;
	bool is_open = has_open_step(l);

	if (c->is_sequential && !is_open) {
		l->step++;
		l->count = 0;
		l->was_reset = false;
		is_open = true;
	}
	c->step = is_open ? l->step : 0;
	c->number = is_open ? ++l->count : 0;
	c->next = NULL;
	while (*end) {
		end = &(*end)->next;
	}
	*end = c;
}

static void unlink_call(struct pai_lane *l, struct pai_lane_call *c)
{
	struct pai_lane_call **at = &l->first;

	while (*at && *at != c) {
		at = &(*at)->next;
	}
	if (*at) {
		*at = c->next;
		c->next = NULL;
		c->step = 0;
	}
}

struct pai_lane_call *pai_lane_next(struct pai_lane *l)
{
	size_t running = 0;

	for (struct pai_lane_call *c = l->first; c; c = c->next) {
		if (c->after) {
			unlink_call(l, c);
			return c;
		}
	}
	for (struct pai_lane_call *c = l->first; c; c = c->next) {
		if (c->is_sequential && c != l->first) {
			return NULL;
		}
		if (!c->is_running) {
			if (running == PAI_LANE_TOGETHER) {
				return NULL;
			}
			c->is_running = true;
			return c;
		}
		if (c->is_sequential) {
			return NULL;
		}
		running++;
	}
	return NULL;
}

void pai_lane_stop(struct pai_lane *l, struct pai_lane_call *c)
{
	for (struct pai_lane_call *w = c->step ? l->first : NULL; w; w = w->next) {
		if (w->step == c->step && w->number > c->number && !w->is_running && !w->after) {
			w->after = c->number;
		}
	}
	c->step = 0;
}

void pai_lane_remove(struct pai_lane *l, struct pai_lane_call *c, bool stops)
{
	if (stops) {
		pai_lane_stop(l, c);
	}
	unlink_call(l, c);
}
