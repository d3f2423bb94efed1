/*
 * Runs tests/data/ptx_exec/scalar.cases: each line becomes a kernel that loads the sources,
 * executes the instruction and stores what it gave, by all 32 lanes of a warp and again by five.
 */
#include "fixture.h"

#include "tests/lib/tl_cmocka.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct test_case {
    char opcode[64];
    char kinds[8][32];
    uint32_t n_kinds;
    uint64_t in[8];
    uint32_t n_in;
    uint64_t out[2];
    uint32_t n_out;
};

static bool parse(const char *line, struct test_case *c)
{
    memset(c, 0, sizeof *c);
    char copy[256];
    snprintf(copy, sizeof copy, "%s", line);
    char *at = NULL;
    char *word = strtok_r(copy, " \n", &at);
    if (!word || word[0] == '#') {
        return false;
    }
    snprintf(c->opcode, sizeof c->opcode, "%s", word);
    int part = 0;
    while ((word = strtok_r(NULL, " \n", &at))) {
        if (strcmp(word, ":") == 0 || strcmp(word, "=") == 0) {
            part++;
        } else if (part == 0) {
            snprintf(c->kinds[c->n_kinds++], sizeof c->kinds[0], "%s", word);
        } else if (part == 1) {
            c->in[c->n_in++] = strtoull(word, NULL, 0);
        } else {
            c->out[c->n_out++] = strtoull(word, NULL, 0);
        }
    }
    return true;
}

/* Names by kind: %h1 %r1 %d1 %p1 for operand 1; destinations are operand 0 and 9. */
static void operand(char *text, size_t room, const char *kind, int k)
{
    if (kind[0] == '=') {
        snprintf(text, room, "%s", kind + 1);
    } else if (strcmp(kind, "p|p") == 0) {
        snprintf(text, room, "%%p0|%%p9");
    } else {
        snprintf(text, room, "%%%c%d", kind[0], k);
    }
}

static void load(char *body, size_t room, char kind, int k, int slot)
{
    size_t n = strlen(body);
    if (kind == 'p') {
        snprintf(body + n, room - n, "ld.global.u64 %%t, [%%in+%d]; setp.ne.u64 %%p%d, %%t, 0;\n",
                 slot * 8, k);
    } else {
        snprintf(body + n, room - n, "ld.global.u%d %%%c%d, [%%in+%d];\n",
                 kind == 'h'   ? 16
                 : kind == 'r' ? 32
                               : 64,
                 kind, k, slot * 8);
    }
}

static void store(char *body, size_t room, char kind, int k, int slot)
{
    size_t n = strlen(body);
    if (kind == 'p') {
        snprintf(body + n, room - n, "selp.u64 %%t, 1, 0, %%p%d; st.global.u64 [%%out+%d], %%t;\n",
                 k, slot * 8);
    } else {
        snprintf(body + n, room - n, "st.global.u%d [%%out+%d], %%%c%d;\n",
                 kind == 'h'   ? 16
                 : kind == 'r' ? 32
                               : 64,
                 slot * 8, kind, k);
    }
}

static void make_text(const struct test_case *c, char *text, size_t room)
{
    char body[2048] = "";
    char operands[512] = "";
    int slot = 0;
    for (uint32_t k = 0; k < c->n_kinds; k++) {
        char one[64];
        operand(one, sizeof one, c->kinds[k], (int)k);
        snprintf(operands + strlen(operands), sizeof operands - strlen(operands), "%s%s",
                 k == 0 ? "" : ", ", one);
        if (k > 0 && c->kinds[k][0] != '=') {
            load(body, sizeof body, c->kinds[k][0], (int)k, slot++);
        }
    }
    snprintf(body + strlen(body), sizeof body - strlen(body), "%s %s;\n", c->opcode, operands);
    store(body, sizeof body, c->kinds[0][0], 0, 0);
    if (strcmp(c->kinds[0], "p|p") == 0) {
        store(body, sizeof body, 'p', 9, 1);
    }
    snprintf(text, room,
             ".version 8.6\n.target sm_90\n.address_size 64\n"
             ".visible .entry k(.param .u64 a, .param .u64 b)\n{\n"
             ".reg .b16 %%h<10>; .reg .b32 %%r<10>; .reg .b64 %%d<10>; .reg .pred %%p<10>;\n"
             ".reg .b64 %%in, %%out, %%t, %%o; .reg .b32 %%who;\n"
             "ld.param.u64 %%in, [a]; ld.param.u64 %%out, [b];\n"
             "mov.b32 %%r8, 0; mov.b32 %%r9, 0;\n"
             "mov.u32 %%who, %%tid.x; mul.wide.u32 %%o, %%who, 16; add.u64 %%out, %%out, %%o;\n"
             "%sret;\n}\n",
             body);
}

static uint64_t kind_mask(char kind)
{
    return kind == 'h' ? 0xffff : kind == 'r' ? 0xffffffff : UINT64_MAX;
}

static int run_case(struct weir_exec_device *device, const char *line, uint64_t *in, uint64_t *out)
{
    struct test_case c;
    if (!parse(line, &c)) {
        return 0;
    }
    char text[4096];
    make_text(&c, text, sizeof text);
    struct weir_exec_module *module = tx_load_text(device, text);
    const struct weir_exec_kernel_info *info =
        weir_exec_kernel_info(weir_exec_module_kernel(module, "k"));
    int bad = 0;
    if (info->unsupported) {
        print_error("%s: %s", info->unsupported, line);
        bad = 1;
    }
    memcpy(in, c.in, sizeof c.in);
    static const uint32_t sizes[] = {32, 5};
    for (uint32_t size = 0; size < 2 && bad == 0; size++) {
        uint32_t threads = sizes[size];
        memset(out, 0, 32 * 16);
        void *params[] = {in, out};
        tx_must(device, module, "k", (struct tx_launch){.grid = 1, .block = threads}, params, 16);
        for (uint32_t t = 0; t < 32; t++) {
            for (uint32_t k = 0; k < c.n_out; k++) {
                uint64_t want = t < threads ? c.out[k] : 0;
                uint64_t got = out[t * 2 + k] & kind_mask(c.kinds[0][0]);
                if (got != want && bad == 0) {
                    print_error("lane %u gave 0x%llx: %s", t, (unsigned long long)got, line);
                    bad = 1;
                }
            }
        }
    }
    weir_exec_module_destroy(module);
    return bad;
}

static void every_case_gives_its_result(void **state)
{
    (void)state;
    struct weir_exec_device *device = tx_device();
    uint64_t *in = tx_alloc(64);
    uint64_t *out = tx_alloc(32 * 16);
    FILE *file = fopen(WEIR_TEST_DATA "/ptx_exec/scalar.cases", "r");
    assert_non_null(file);
    char line[256];
    int bad = 0;
    int n = 0;
    while (fgets(line, sizeof line, file)) {
        bad += run_case(device, line, in, out);
        n++;
    }
    fclose(file);
    tx_free(in);
    tx_free(out);
    weir_exec_device_destroy(device);
    assert_true(n > 200);
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_case_gives_its_result)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
