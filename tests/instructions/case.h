/*
 * A case, which generate.py writes: a kernel that applies an instruction form to many inputs.
 *
 * The head of the file says what goes in and out, in lines that begin with "//!":
 *
 *   //! in f32 f32 u32:0..70   columns of a thread's inputs; KIND*N repeats one
 *   //! out f32 12             results of a thread: type and how many
 *   //! threads 512 block 64   geometry; those are the defaults
 *   //! ulp 0-3 2 REASON       results 0 to 3 may differ by 2 units in the last place, and why
 *   //! abs 4-5 2e-6 REASON    or by so much
 *   //! bits 6-6 16 REASON     of result 6 only the lowest 16 bits are compared, and why
 *
 * The kernel is `test` with parameters (u64 in, u64 out, u32 threads). Column c of thread t is the
 * 8 bytes at in + (t * columns + c) * 8; result r of thread t goes to out + (r * threads + t) *
 * size, where size is 4 or 8 by the type. Whatever no bound is given for is compared bit for bit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CASE_MAX_COLUMNS 48
#define CASE_MAX_BOUNDS  32

struct case_column {
    char kind[16];
    bool has_range;
    int64_t low, high;
};

/* How far results may be from those recorded. */
struct case_bound {
    uint32_t first, last;
    double ulp, abs;
    uint32_t bits; /* how many of the lowest are compared; 0: all */
};

struct test_case {
    char name[128]; /* of the file, without .ptx */
    char *text;     /* the PTX; owned */
    uint32_t n_columns;
    struct case_column columns[CASE_MAX_COLUMNS];
    char out_type[16];
    uint32_t out_bytes; /* of one result */
    uint32_t n_results;
    uint32_t threads, block;
    uint32_t n_bounds;
    struct case_bound bounds[CASE_MAX_BOUNDS];
};

/** Read FOLDER/NAME.ptx. @return false, with a line on stderr,
 * for what does not follow the rules */
bool case_read(struct test_case *c, const char *folder, const char *name);
void case_finish(struct test_case *c);

static inline size_t case_input_bytes(const struct test_case *c)
{
    return (size_t)c->n_columns * c->threads * 8;
}

static inline size_t case_output_bytes(const struct test_case *c)
{
    return (size_t)c->n_results * c->threads * c->out_bytes;
}

/** Fill the inputs: the same on every machine. @return false for an unknown kind of column */
bool case_inputs(const struct test_case *c, uint64_t *inputs);

/** What a record is of: the PTX from .version on, the inputs, the shape of the outputs. */
uint64_t case_key(const struct test_case *c, const uint64_t *inputs);

/**
 * Compare outputs; says on stdout where the first few differ.
 * @return how many results differ.
 */
uint32_t case_compare(const struct test_case *c, const uint64_t *inputs, const void *got,
                      const void *want, uint32_t max_lines);
