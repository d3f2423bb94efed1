/* One measurement of a header: a size, an offset, an enumerator or a constant. */
#pragma once

struct parity_row {
    const char *name;
    long long value;
};

/* Generated in the same order: of proto/cuda_abi.h, and of the toolkit's cuda.h. */
extern const struct parity_row parity_ours[];
extern const unsigned parity_ours_count;
extern const struct parity_row parity_toolkit[];
extern const unsigned parity_toolkit_count; /* 0 when the toolkit is of another version */
