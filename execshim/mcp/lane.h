/*
 * lane: in which order the calls on one session are made. bash, write and edit run alone and in the
 * order in which they came; the others run together. MCP has no step: a call that comes while one
 * of the sequential ones runs or waits belongs to that one's, and one of a step that fails stops
 * those of it that still wait.
 *
 * Pure: nobody is called, nothing is owned.
 */
#ifndef PAI_EXECSHIM_MCP_LANE_H
#define PAI_EXECSHIM_MCP_LANE_H

#include <stdbool.h>
#include <stddef.h>

#define PAI_LANE_TOGETHER 16 /* at once */

struct pai_lane_call {
	struct pai_lane_call *next;
	bool is_sequential;
	bool is_running;
	unsigned step;   /* 0: of none */
	unsigned number; /* within it, from 1 */
	unsigned after;  /* stopped by that one; 0: not stopped */
};
struct pai_lane {
	struct pai_lane_call *first; /* in the order in which they came */
	unsigned step;               /* the latest */
	unsigned count;              /* calls of it */
	bool was_reset;              /* something of it ran in a new environment */
};
void pai_lane_add(struct pai_lane *l, struct pai_lane_call *c);
/* What is to be done next: a call that may run now, marked as running, or one that is stopped
 * (after != 0), taken out. NULL: nothing. */
struct pai_lane_call *pai_lane_next(struct pai_lane *l);
/* It shall not go on, or has failed: what waits behind it in its step is stopped, and what comes
 * from now on is of another step, even while it still runs. */
void pai_lane_stop(struct pai_lane *l, struct pai_lane_call *c);
/* It has ended, or shall not be made. `stops`: it ran, and those behind it in its step stay undone.
 */
void pai_lane_remove(struct pai_lane *l, struct pai_lane_call *c, bool stops);

#endif
