/*
 * Implements programs.h. Taking a row replaces its token 0 by a new one. Marks about an earlier
 * program of the row carry another token, so they do not apply to the present one.
 */
#include "base/programs.h"

#include "base/clock.h"
#include "base/search.h"
#include "base/status.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static uint64_t load(const atomic_uint_fast64_t *from)
{
    return atomic_load_explicit(from, memory_order_relaxed);
}

static struct weir_program_row *row_of(struct weir_programs *programs, uint32_t number)
{
    return number != 0 && number <= WEIR_PROGRAMS ? &programs->rows[number - 1] : NULL;
}

uint32_t weir_programs_last(const struct weir_programs *programs)
{
    uint32_t used = atomic_load_explicit(&programs->used, memory_order_relaxed);

    /* Another process may have written a wrong number there. */
    return WEIR_MIN(used, WEIR_PROGRAMS);
}

static void note_used(struct weir_programs *programs, uint32_t number)
{
    unsigned used = atomic_load_explicit(&programs->used, memory_order_relaxed);

    while (used < number &&
           !atomic_compare_exchange_weak_explicit(&programs->used, &used, number,
                                                  memory_order_relaxed, memory_order_relaxed)) {
    }
}

static void fill(struct weir_program_row *row, uint32_t place, uint32_t pid_here, const char *name)
{
    uint64_t words[WEIR_PROGRAM_NAME_WORDS] = {0};

    memcpy(words, name, strnlen(name, sizeof words - 1));
    for (int i = 0; i < WEIR_PROGRAM_NAME_WORDS; i++) {
        atomic_store_explicit(&row->name[i], words[i], memory_order_relaxed);
    }
    atomic_store_explicit(&row->pid_here, pid_here, memory_order_relaxed);
    /* P1: publishes the row's program; meets the acquire in is_of(). */
    atomic_store_explicit(&row->place, place + 1, memory_order_release);
}

uint32_t weir_programs_add(struct weir_programs *programs, uint32_t place, uint32_t pid_here,
                           const char *name)
{
    uint64_t token = atomic_fetch_add_explicit(&programs->tokens, 1, memory_order_relaxed) + 1;

    for (uint32_t number = 1; number <= WEIR_PROGRAMS; number++) {
        struct weir_program_row *row = row_of(programs, number);
        uint_fast64_t nobody = 0;

        if (atomic_compare_exchange_strong_explicit(&row->token, &nobody, token,
                                                    memory_order_relaxed, memory_order_relaxed)) {
            fill(row, place, pid_here, name);
            note_used(programs, number);
            return number;
        }
    }
    return 0;
}

void weir_programs_show(struct weir_programs *programs, uint32_t number, uint32_t pid)
{
    struct weir_program_row *row = row_of(programs, number);

    if (row) {
        atomic_store_explicit(&row->pid, pid, memory_order_relaxed);
    }
}

void weir_programs_hold(struct weir_programs *programs, uint32_t number, uint64_t bytes)
{
    struct weir_program_row *row = row_of(programs, number);

    if (row) {
        atomic_store_explicit(&row->bytes, bytes, memory_order_relaxed);
    }
}

/* End the program that has, or had, this token. */
static void end(struct weir_program_row *row, uint64_t token)
{
    if (token != 0 && load(&row->ended) != token) {
        atomic_store_explicit(&row->ended_ns, weir_clock_now_ns(), memory_order_relaxed);
        /* P2: publishes the time; meets the acquire in has_ended(). */
        atomic_store_explicit(&row->ended, token, memory_order_release);
    }
}

void weir_programs_end(struct weir_programs *programs, uint32_t number)
{
    struct weir_program_row *row = row_of(programs, number);

    if (row) {
        end(row, load(&row->token));
    }
}

static void given_back(struct weir_programs *programs)
{
    /* P3: publishes what was given back; meets the acquire in weir_programs_ends(). */
    __atomic_add_fetch(&programs->ends, 1, __ATOMIC_RELEASE);
    weir_futex_wake(&programs->ends, INT_MAX);
}

static void take_out(struct weir_program_row *row)
{
    atomic_store_explicit(&row->pid, 0, memory_order_relaxed);
    atomic_store_explicit(&row->bytes, 0, memory_order_relaxed);
    atomic_store_explicit(&row->place, 0, memory_order_relaxed);
    /* P4: publishes that the row has no place; meets the acquire in token_of(). */
    atomic_store_explicit(&row->token, 0, memory_order_release);
}

void weir_programs_remove(struct weir_programs *programs, uint32_t number)
{
    struct weir_program_row *row = row_of(programs, number);

    if (row) {
        take_out(row);
    }
    given_back(programs);
}

/* Does the row's program belong to the process of this place? */
static bool is_of(const struct weir_program_row *row, uint32_t place)
{
    uint32_t owner = (uint32_t)atomic_load_explicit(&row->place, memory_order_acquire);

    return owner != 0 && (place == WEIR_ANY_PLACE || owner == place + 1);
}

void weir_programs_settle(struct weir_programs *programs, uint32_t place)
{
    for (uint32_t number = 1; number <= weir_programs_last(programs); number++) {
        if (is_of(row_of(programs, number), place)) {
            take_out(row_of(programs, number));
        }
    }
    given_back(programs);
}

static bool has_ended(const struct weir_program_row *row, uint64_t token)
{
    return atomic_load_explicit(&row->ended, memory_order_acquire) == token;
}

/* Returns a row's token; 0: it has no program. */
static uint64_t token_of(const struct weir_program_row *row)
{
    /* P4: meets the release in take_out(): a reader of a new token sees that the row has no old
     * place. */
    return atomic_load_explicit(&row->token, memory_order_acquire);
}

bool weir_programs_get(const struct weir_programs *programs, uint32_t number,
                       struct weir_program *ret_program)
{
    const struct weir_program_row *row = &programs->rows[number - 1];
    uint64_t words[WEIR_PROGRAM_NAME_WORDS], token = token_of(row);

    WEIR_FAIL_IF(token == 0 || !is_of(row, WEIR_ANY_PLACE), false);
    for (int i = 0; i < WEIR_PROGRAM_NAME_WORDS; i++) {
        words[i] = load(&row->name[i]);
    }
    *ret_program = (struct weir_program){
        .place = (uint32_t)atomic_load_explicit(&row->place, memory_order_relaxed) - 1,
        .pid = (uint32_t)atomic_load_explicit(&row->pid, memory_order_relaxed),
        .ended = has_ended(row, token),
        .bytes = load(&row->bytes)};
    memcpy(ret_program->name, words, sizeof words);
    ret_program->name[sizeof words - 1] = '\0'; /* another process may have overwritten the NUL */
    return true;
}

bool weir_process_is_gone(uint32_t pid)
{
    int saved_errno = errno;
    bool gone = pid != 0 && getpgid((pid_t)pid) < 0 && errno == ESRCH;

    errno = saved_errno;
    return gone;
}

/* The kernel may know of the end first: the program's parent may have waited for it before the
 * serving process noticed. The token was read earlier, so the result only applies to the program
 * with that token. */
static void ask_kernel(struct weir_program_row *row, uint64_t token)
{
    uint32_t pid = (uint32_t)atomic_load_explicit(&row->pid_here, memory_order_relaxed);

    if (!has_ended(row, token) && weir_process_is_gone(pid)) {
        end(row, token);
    }
}

struct weir_programs_sum weir_programs_look(struct weir_programs *programs, uint32_t place,
                                            uint64_t max_age_ns)
{
    struct weir_programs_sum sum = {0};
    uint64_t now_ns = weir_clock_now_ns();

    for (uint32_t number = 1; number <= weir_programs_last(programs); number++) {
        struct weir_program_row *row = row_of(programs, number);
        uint64_t token = token_of(row), bytes;

        if (token == 0 || !is_of(row, place)) {
            continue;
        }
        ask_kernel(row, token);
        bytes = load(&row->bytes);
        if (has_ended(row, token) &&
            (max_age_ns == UINT64_MAX || now_ns < load(&row->ended_ns) + max_age_ns)) {
            sum.n_ended++;
        } else {
            sum.alive_bytes += bytes;
        }
    }
    return sum;
}

uint32_t weir_programs_ends(const struct weir_programs *programs)
{
    return __atomic_load_n(&programs->ends, __ATOMIC_ACQUIRE);
}

void weir_programs_await(struct weir_programs *programs, uint32_t ends, uint64_t timeout_ns)
{
    (void)weir_futex_wait(&programs->ends, ends, timeout_ns);
}
