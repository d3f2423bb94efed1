/*
 * Says in the log where a process crashed.
 */
#ifndef WEIR_BASE_CRASH_H
#define WEIR_BASE_CRASH_H

/**
 * From now on, if one of the signals SIGSEGV, SIGILL, SIGFPE and SIGABRT ends the process, the log
 * first gets a line with the calls that led there, innermost first, each as file+offset (for
 * addr2line -e FILE OFFSET). The signal ends the process as before. If even the line cannot be
 * made, SIGALRM ends it after two seconds. A signal that has a handler keeps it.
 * @thread call before other threads begin
 */
void weir_crash_init(void);

#endif
