/*
 * print: what `pai` shows: tables and name-value lists for people, JSON for programs. Every text
 * goes through pai_printable(); JSON is pure ASCII, so that no terminal is led astray by it either.
 */
#ifndef PAI_EXECSHIM_PRINT_H
#define PAI_EXECSHIM_PRINT_H

#include <stdint.h>
#include <stdio.h>

#include "providers/base/json.h"

struct pai_table;

/* `heads` ends with NULL and must live as long as the table. NULL without memory. */
struct pai_table *pai_table_new(const char *const heads[]);
void pai_table_free(struct pai_table *t);
PAI_DEFINE_AUTO(struct pai_table, pai_table_free)
#define pai_auto_table PAI_AUTO(pai_table_free_p)
/* The next cell, row by row; NULL and "" show as "-". 0 or -ENOMEM. */
int pai_table_add(struct pai_table *t, const char *text) PAI_WARN_UNUSED;
/* Columns are padded by characters; nothing trails. */
void pai_table_print(const struct pai_table *t, FILE *to);

/* Compact, one line. -ENOMEM. */
int pai_print_json(const struct pai_json *j, FILE *to) PAI_WARN_UNUSED;
/* The members of an object that are texts, numbers and booleans, one a line. */
void pai_print_members(const struct pai_json *obj, const char *indent, FILE *to);

/* "2026-11-30 19:12:08", local time; "-" for 0. */
const char *pai_time_text(int64_t wall_ms, char ret[32]);
/* A number, text or boolean of an object as text; "" for what is not there. */
const char *pai_member_text(const struct pai_json *obj, const char *key, char ret[32]);

#endif
