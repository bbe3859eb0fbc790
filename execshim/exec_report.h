/* exec_report: what the user and --status-fd are told of a result. */
#ifndef PAI_EXECSHIM_EXEC_REPORT_H
#define PAI_EXECSHIM_EXEC_REPORT_H

#include "execshim/exec_run.h"

/* At most a few lines on stderr. */
void pai_exec_report_text(const struct pai_exec_result *r);
/* One line to fd: the daemon's STATUS as it came; where there is none, an object of the same shape
 * with "source":"pai". */
void pai_exec_report_status(const struct pai_exec_result *r, int fd);
/* The object that is written when the daemon said none; the caller frees; NULL without memory. */
char *pai_exec_own_status(const struct pai_exec_result *r);

#endif
