/*
 * Says in the log where a process crashed.
 */
#pragma once

/**
 * Install handlers for SIGSEGV, SIGILL, SIGFPE and SIGABRT. Before such a signal ends the process,
 * its handler writes the stack of the thread into the log, innermost call first. Each call is
 * file+offset, as "addr2line -e FILE OFFSET" takes it. If the handler itself hangs, SIGALRM ends
 * the process after two seconds. A signal that has another handler keeps that one.
 *
 * The calling thread gets a stack of its own for handlers, so an overflow of its stack is logged,
 * too. An overflow in another thread is not.
 * @thread call before other threads begin
 */
void weir_crash_init(void);
