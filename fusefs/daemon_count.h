/*
 * daemon_count: how often the daemon called its provider, by call: what shows that looking at a
 * session costs nothing over there.
 */
#ifndef PAI_FUSEFS_DAEMON_COUNT_H
#define PAI_FUSEFS_DAEMON_COUNT_H

#include "providers/base/json.h"
#include "providers/provider.h"

/* A decorator: takes `take_inner`, also on failure. */
int pai_count_new(struct pai_provider *take_inner, struct pai_provider **ret,
    struct pai_err *err) PAI_WARN_UNUSED;
/* {NAME: N...} of a provider that pai_count_new() made. */
int pai_count_get(
    struct pai_provider *p, struct pai_json *into, struct pai_err *err) PAI_WARN_UNUSED;

#endif
