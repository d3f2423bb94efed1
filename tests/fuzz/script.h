/* A fuzzer's input as a script: numbers are taken from its front until nothing is left. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct script {
    const uint8_t *at;
    size_t left;
};

/* A number of up to 4 bytes; what the script is short of is 0. */
static inline uint32_t take(struct script *script, size_t bytes)
{
    uint32_t value = 0;
    size_t n = bytes < script->left ? bytes : script->left;

    if (n != 0) {
        memcpy(&value, script->at, n);
        script->at += n;
        script->left -= n;
    }
    return value;
}
