/* version: what every program's --version says, and the Makefile reads. */
#ifndef PAI_BASE_VERSION_H
#define PAI_BASE_VERSION_H

#define PAI_VERSION "0.1.0"

#endif
