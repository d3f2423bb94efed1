/*
 * The kernels of the benchmark: their inputs in four sizes, and what must come out.
 *
 * Inputs are functions of an index (kernels/values.h), written by the device, so that the host can
 * compute any element of an output by itself. Outputs are apart from inputs: a kernel may run again
 * and again, and what its original wrote is kept to compare its twins' results with, bit by bit.
 */
#pragma once

#include "tests/bench/forms/cuda.h"

#include <stddef.h>
#include <stdint.h>

#define WEIR_FORMS_BUFFERS 8u
#define WEIR_FORMS_PARAMS  12u

enum weir_forms_size {
    WEIR_FORMS_LARGE,   /* milliseconds on a large GPU */
    WEIR_FORMS_SMALL,   /* tens to hundreds of microseconds there */
    WEIR_FORMS_TRIVIAL, /* a few blocks */
    WEIR_FORMS_QUICK,   /* some dozens of blocks: enough to stop in, for softgpu */
    WEIR_FORMS_SIZE_COUNT
};

/* "large" .. */
extern const char *const weir_forms_size_names[WEIR_FORMS_SIZE_COUNT];

struct weir_forms_work;

/* A kernel of the benchmark. Immutable. */
struct weir_forms_kernel {
    const char *name; /* of the entry, and of kernels/NAME.cu */
    const char *what; /* one line for people */
    const char *ptx;  /* text of kernels/NAME.ptx */
    const char *ptx_end;
    uint32_t block[3];
    bool is_integer;  /* outputs are int32_t, else float */
    uint32_t samples; /* elements to check of a large output; the rest is compared bit by bit */
    uint32_t dims[WEIR_FORMS_SIZE_COUNT][3]; /* what they mean is setup's */
    /* Make buffers and parameters, set the grid. False after a failure. */
    bool (*setup)(struct weir_forms_work *work);
    /* What element i of an output must be, give or take *ret_bound. */
    double (*expect)(const struct weir_forms_work *work, uint32_t output, uint64_t i,
                     double *ret_bound);
};

struct weir_forms_buffer {
    CUdeviceptr at;
    CUdeviceptr kept; /* outputs: what the original wrote */
    uint64_t bytes;
};

/* A kernel with an input of a size. Owner thread only. */
struct weir_forms_work {
    const struct weir_forms_kernel *kernel;
    enum weir_forms_size size;
    const uint32_t *dims;
    uint32_t grid[3];
    uint32_t blocks;
    struct weir_forms_buffer buffers[WEIR_FORMS_BUFFERS];
    uint32_t n_buffers;
    uint32_t outputs[2]; /* indices of buffers */
    uint32_t n_outputs;
    union {
        uint64_t bits;
        int32_t i;
        uint32_t u;
        float f;
    } values[WEIR_FORMS_PARAMS];
    void *params[WEIR_FORMS_PARAMS + 2]; /* room for a form's and the end */
    uint32_t n_params;
};

extern const struct weir_forms_kernel *const weir_forms_kernels[];
extern const uint32_t weir_forms_n_kernels;

/** Load the helper kernels; once per context, first. */
bool weir_forms_helpers_load(CUstream stream);

/** A helper kernel of kernels/helpers.cu, or NULL. */
CUfunction weir_forms_helper(const char *name);

/** Make the input of a size. On failure, too, weir_forms_work_finish() is due. */
bool weir_forms_work_init(struct weir_forms_work *work, const struct weir_forms_kernel *kernel,
                          enum weir_forms_size size);

/** Free it. Accepts zeroes. */
void weir_forms_work_finish(struct weir_forms_work *work);

/** Overwrite the outputs, so that what is there afterwards was written by the next run. */
bool weir_forms_work_spoil(struct weir_forms_work *work);

/** Whether what the original wrote is right, by the host's computation; then it is kept. */
bool weir_forms_work_keep(struct weir_forms_work *work);

/** Count the words in which the outputs are not what was kept. */
bool weir_forms_work_compare(struct weir_forms_work *work, uint32_t *ret_differences);

/** Whether the outputs are right by the host's computation, whatever was kept. */
bool weir_forms_work_check(struct weir_forms_work *work);

/* For setup functions: all of them remember a failure in the work's stead and go on. */

/* Add a buffer of count words that fill has written; its address is the next parameter. */
void weir_forms_add_floats(struct weir_forms_work *work, uint64_t count, uint32_t seed, float low,
                           float span);
/* The same with count halves, as weir_value_half() has them. */
void weir_forms_add_halves(struct weir_forms_work *work, uint64_t count, uint32_t seed);
/* Write count floats of the last buffer again, from the first-th on. */
void weir_forms_fill_floats(struct weir_forms_work *work, uint64_t first, uint64_t count,
                            uint32_t seed, float low, float span);
void weir_forms_add_below(struct weir_forms_work *work, uint64_t count, uint32_t seed,
                          uint32_t limit);
void weir_forms_add_bytes(struct weir_forms_work *work, uint64_t count, uint32_t seed);
void weir_forms_add_near(struct weir_forms_work *work, const char *fill, uint64_t count,
                         uint32_t seed, uint32_t reach, uint32_t items);
void weir_forms_add_rows(struct weir_forms_work *work, uint64_t count, uint32_t seed, uint32_t base,
                         uint32_t spread);
void weir_forms_add_places(struct weir_forms_work *work, uint64_t atoms, uint32_t seed);
/* The same from the host's memory. */
void weir_forms_add_data(struct weir_forms_work *work, const void *data, uint64_t bytes);
/* Add an output of count words. */
void weir_forms_add_output(struct weir_forms_work *work, uint64_t count);
/* Add a parameter. */
void weir_forms_add_int(struct weir_forms_work *work, int32_t value);
void weir_forms_add_float(struct weir_forms_work *work, float value);
/* Set the grid. @return whether all went well */
bool weir_forms_set_grid(struct weir_forms_work *work, uint64_t x, uint64_t y);

/* Rows of the kernels' table, in their files. */
extern const struct weir_forms_kernel weir_forms_va, weir_forms_nn, weir_forms_bs, weir_forms_rg,
    weir_forms_tr, weir_forms_cfd, weir_forms_pf, weir_forms_pl, weir_forms_md, weir_forms_spmv,
    weir_forms_mm, weir_forms_gs, weir_forms_sgemm, weir_forms_tg;

/* Puts kernels/NAME.ptx into the program, as weir_forms_NAME_ptx .. weir_forms_NAME_ptx_end. */
#define WEIR_FORMS_PTX(name)                                                                       \
    __asm__(".section .rodata\nweir_forms_" #name "_ptx:\n.incbin \"" #name ".ptx\"\n"             \
            "weir_forms_" #name "_ptx_end:\n.byte 0\n.previous\n");                                \
    extern const char weir_forms_##name##_ptx[], weir_forms_##name##_ptx_end[]
