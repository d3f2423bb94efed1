/* Reading of a case: see case.h. */
#include "tests/instructions/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool bad(const struct test_case *c, const char *line)
{
    fprintf(stderr, "%s.ptx: cannot read '%s'\n", c->name, line);
    return false;
}

static bool read_column(struct test_case *c, char *word)
{
    uint32_t repeat = 1;
    char *star = strchr(word, '*');
    if (star) {
        repeat = (uint32_t)strtoul(star + 1, NULL, 10);
        *star = '\0';
    }
    struct case_column column = {0};
    char *colon = strchr(word, ':');
    if (colon) {
        long long low, high;
        if (sscanf(colon, ":%lld..%lld", &low, &high) != 2) {
            return false;
        }
        column.has_range = true;
        column.low = low;
        column.high = high;
        *colon = '\0';
    }
    snprintf(column.kind, sizeof column.kind, "%s", word);
    for (uint32_t k = 0; k < repeat; k++) {
        if (c->n_columns == CASE_MAX_COLUMNS) {
            return false;
        }
        c->columns[c->n_columns++] = column;
    }
    return true;
}

static bool read_bound(struct test_case *c, const char *line)
{
    struct case_bound *b = &c->bounds[c->n_bounds];
    char kind[8];
    double value;
    int end = 0;
    if (c->n_bounds == CASE_MAX_BOUNDS ||
        sscanf(line, "%7s %u-%u %lf %n", kind, &b->first, &b->last, &value, &end) != 4 ||
        end == 0 || line[end] == '\0') {
        return false; /* a bound without a reason is no bound */
    }
    b->ulp = strcmp(kind, "ulp") == 0 ? value : 0;
    b->abs = strcmp(kind, "abs") == 0 ? value : 0;
    b->bits = strcmp(kind, "bits") == 0 && value >= 1 && value < 64 ? (uint32_t)value : 0;
    c->n_bounds++;
    return b->ulp > 0 || b->abs > 0 || b->bits > 0;
}

static bool read_line(struct test_case *c, char *line)
{
    if (strncmp(line, "in", 2) == 0 && (line[2] == ' ' || line[2] == '\0')) {
        char *save = NULL;
        for (char *word = strtok_r(line + 2, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
            if (!read_column(c, word)) {
                return false;
            }
        }
        return true;
    }
    if (strncmp(line, "out ", 4) == 0) {
        if (sscanf(line, "out %15s %u", c->out_type, &c->n_results) != 2) {
            return false;
        }
        c->out_bytes = strstr(c->out_type, "64") ? 8 : 4;
        return c->n_results != 0;
    }
    if (strncmp(line, "threads ", 8) == 0) {
        return sscanf(line, "threads %u block %u", &c->threads, &c->block) == 2 && c->block != 0 &&
               c->threads % c->block == 0;
    }
    return read_bound(c, line);
}

static char *read_text(const char *folder, const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s.ptx", folder, name);
    FILE *f = fopen(path, "rb");
    if (!f) {
        perror(path);
        return NULL;
    }
    size_t room = 1u << 20;
    char *text = malloc(room);
    size_t n = text ? fread(text, 1, room - 1, f) : 0;
    fclose(f);
    if (text) {
        text[n] = '\0';
    }
    return text;
}

bool case_read(struct test_case *c, const char *folder, const char *name)
{
    *c = (struct test_case){.threads = 512, .block = 64};
    snprintf(c->name, sizeof c->name, "%s", name);
    c->text = read_text(folder, name);
    if (!c->text) {
        return false;
    }
    for (const char *at = c->text; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        char line[512];
        if (strncmp(at, "//! ", 4) == 0) {
            snprintf(line, sizeof line, "%.*s", (int)strcspn(at + 4, "\n"), at + 4);
            char shown[512];
            memcpy(shown, line, sizeof shown);
            if (!read_line(c, line)) {
                return bad(c, shown);
            }
        }
    }
    return c->n_results != 0 || bad(c, "no results");
}

void case_finish(struct test_case *c)
{
    free(c->text);
    c->text = NULL;
}

static uint64_t hash(uint64_t h, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t k = 0; k < bytes; k++) {
        h = (h ^ p[k]) * 0x100000001b3ull;
    }
    return h;
}

uint64_t case_key(const struct test_case *c, const uint64_t *inputs)
{
    const char *program = strstr(c->text, "\n.version");
    program = program ? program : c->text;
    uint32_t shape[4] = {c->threads, c->block, c->n_results, c->out_bytes};
    uint64_t h = hash(0xcbf29ce484222325ull, program, strlen(program));
    h = hash(h, shape, sizeof shape);
    return hash(h, inputs, case_input_bytes(c));
}
