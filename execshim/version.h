/* version: what --version says. */
#ifndef PAI_EXECSHIM_VERSION_H
#define PAI_EXECSHIM_VERSION_H

#define PAI_VERSION "0.1.0"

#endif
