/*
 * Lines are cut at the terminal's width, and frames at its number of rows, so a frame never
 * scrolls. Control characters in programs' names are replaced before the names get here.
 */
#include "tools/top_screen.h"

#include "base/text.h"
#include "tools/command.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define BAR_CELLS    16
#define BARS_COLUMNS 120u /* length of a device's line with bars */

enum colour { PLAIN, BOLD, DIM, GREEN, YELLOW, RED, REVERSE };

static const char *const codes[] = {"0", "1", "2", "32", "33", "31", "7"};

struct page {
    const struct weir_top_screen *screen;
    size_t columns, rows; /* size of the terminal; SIZE_MAX: unlimited */
    size_t column, row;   /* place of the next character */
};

static struct page open_page(const struct weir_top_screen *screen)
{
    struct winsize size;
    struct page page = {.screen = screen, .columns = SIZE_MAX, .rows = SIZE_MAX};
    if (screen->in_place && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 3 &&
        size.ws_col > 20) {
        page.rows = size.ws_row - 1u; /* a newline in the last row would scroll */
        page.columns = size.ws_col;
    }
    return page;
}

static void put(struct page *page, enum colour colour, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void put(struct page *page, enum colour colour, const char *format, ...)
{
    char text[1024];
    const char *at = text;
    va_list args;
    bool coloured = colour != PLAIN && page->screen->colours;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (page->row >= page->rows) {
        return;
    }
    while (*at && page->column < page->columns) {
        (void)weir_utf8_next(&at);
        page->column++;
    }
    if (coloured) {
        printf("\033[%sm", codes[colour]);
    }
    printf("%.*s%s", (int)(at - text), text, coloured ? "\033[0m" : "");
}

static void end_line(struct page *page)
{
    if (page->row++ < page->rows) {
        printf("%s\n", page->screen->in_place ? "\033[K" : "");
    }
    page->column = 0;
}

static enum colour colour_of(double pct)
{
    return pct >= 90 ? RED : pct >= 60 ? YELLOW : GREEN;
}

/* Print "[|||| ] 42%", or a dash for an unknown value. A narrow terminal gets no bar. */
static void put_bar(struct page *page, const char *name, double pct)
{
    int cells = isnan(pct) ? 0 : (int)(fmin(fmax(pct, 0), 100) * BAR_CELLS / 100 + 0.5);
    put(page, PLAIN, "  %s", name);
    if (page->columns >= BARS_COLUMNS) {
        put(page, PLAIN, " [");
        put(page, colour_of(pct), "%.*s", cells, "||||||||||||||||");
        put(page, PLAIN, "%*s]", BAR_CELLS - cells, "");
    }
    if (isnan(pct)) {
        put(page, PLAIN, "    -");
    } else {
        put(page, PLAIN, " %3.0f%%", pct);
    }
}

static const char *number(double value, const char *format, char text[24])
{
    char formatted[24];
    snprintf(formatted, sizeof formatted, "%s", "-");
    if (!isnan(value) && strcmp(format, "bytes/s") == 0) {
        char bytes[16];
        snprintf(formatted, sizeof formatted, "%s/s",
                 weir_human_bytes((unsigned long long)value, bytes));
    } else if (!isnan(value)) {
        snprintf(formatted, sizeof formatted, "%.*f%s", strcmp(format, "%") == 0 ? 1 : 0, value,
                 format);
    }
    memcpy(text, formatted, sizeof formatted);
    return text;
}

static void draw_device(struct page *page, const struct weir_status_device *d,
                        const struct weir_status_rate *rate)
{
    double used = d->memory_bytes ? (double)d->memory_bytes - d->free_bytes : NAN;
    char name[4 * sizeof d->name], a[24], b[24], used_text[16] = "-", total[16];
    if (!isnan(used)) {
        weir_human_bytes((unsigned long long)used, used_text);
    }
    put(page, BOLD, "GPU %u %.*s", d->ordinal, page->columns >= BARS_COLUMNS ? 24 : 14,
        weir_text_visible(d->name, name, sizeof name));
    put_bar(page, "busy", d->utilization_pct);
    put_bar(page, "SMs", rate->sm_pct);
    put_bar(page, "memory", d->memory_bytes ? 100 * used / (double)d->memory_bytes : NAN);
    put(page, PLAIN, " %s of %s  %s  %s", used_text, weir_human_bytes(d->memory_bytes, total),
        number(d->temperature_c, " C", a), number(d->power_w, " W", b));
    end_line(page);
}

/* The columns of tenants. Where the terminal is too narrow, those of the highest rank go first;
 * those of rank 0 stay. */
enum {
    TENANT,
    WEIGHT,
    PRIORITY,
    SHARE,
    SMS,
    SM_S,
    TO,
    FROM,
    MEMORY,
    QUOTA,
    WAIT,
    SESSIONS,
    COLUMNS
};
static const struct {
    const char *head;
    int width; /* below 0: left-aligned */
    int rank;
} columns[COLUMNS] = {
    [TENANT] = {"TENANT", -16, 0},
    [WEIGHT] = {"WEIGHT", 6, 4},
    [PRIORITY] = {"PRIORITY", -8, 6},
    [SHARE] = {"SHARE", 7, 1},
    [SMS] = {"SMS", 7, 7},
    [SM_S] = {"SM-SECONDS", 10, 10},
    [TO] = {"TO-DEVICE", 12, 8},
    [FROM] = {"FROM-DEVICE", 12, 9},
    [MEMORY] = {"MEMORY", 10, 2},
    [QUOTA] = {"QUOTA", 10, 3},
    [WAIT] = {"WAIT", 8, 0},
    [SESSIONS] = {"SESSIONS", 8, 5},
};

static size_t width_of(int column)
{
    return (size_t)abs(columns[column].width) + 1;
}

static const char *note_of(const struct weir_status_tenant *t, char text[64])
{
    uint64_t refused = t->refused_device + t->refused_pinned;
    int used = snprintf(text, 64, "%s%s", t->quarantined ? "  quarantined" : "",
                        t->drained ? "  drained" : "");
    if (refused) {
        snprintf(text + used, (size_t)(64 - used), "  refused %llu", (unsigned long long)refused);
    }
    return text;
}

/* Find which columns fit beside the notes, as a bit mask. */
static unsigned fitting(const struct page *page, const struct weir_top_rates *rates)
{
    unsigned shown = (1u << COLUMNS) - 1;
    size_t width = 0, longest = 0;
    for (int i = 0; i < COLUMNS; i++) {
        width += width_of(i);
    }
    for (size_t i = 0; i < rates->n_tenants; i++) {
        char note[64];
        size_t length = strlen(note_of(rates->tenant_of[i], note));
        longest = WEIR_MAX(length, longest);
    }
    for (int rank = COLUMNS; rank > 0 && width - 1 + longest > page->columns; rank--) {
        for (int i = 0; i < COLUMNS; i++) {
            if (columns[i].rank == rank) {
                shown &= ~(1u << i);
                width -= width_of(i);
            }
        }
    }
    return shown;
}

static void draw_heads(struct page *page, unsigned shown)
{
    for (int i = 0; i < COLUMNS; i++) {
        if (shown >> i & 1) {
            put(page, REVERSE, "%s%*s", i ? " " : "", columns[i].width, columns[i].head);
        }
    }
    end_line(page);
}

static void draw_tenant(struct page *page, const struct weir_status_tenant *t,
                        const struct weir_status_rate *r, unsigned shown)
{
    char texts[COLUMNS][24], note[64];
    snprintf(texts[TENANT], sizeof texts[0], "%.16s", r->tenant);
    snprintf(texts[WEIGHT], sizeof texts[0], "%u", t->weight);
    snprintf(texts[PRIORITY], sizeof texts[0], "%s", t->priority);
    number(r->share_pct, "%", texts[SHARE]);
    number(r->sm_pct, "%", texts[SMS]);
    number(r->sm_s, "", texts[SM_S]);
    number(r->to_device_bytes_per_s, "bytes/s", texts[TO]);
    number(r->from_device_bytes_per_s, "bytes/s", texts[FROM]);
    weir_human_bytes(r->memory_bytes, texts[MEMORY]);
    weir_human_quota(r->quota_bytes, texts[QUOTA]);
    number(r->wait_pct, "%", texts[WAIT]);
    snprintf(texts[SESSIONS], sizeof texts[0], "%u", r->sessions);
    for (int i = 0; i < COLUMNS; i++) {
        enum colour colour = i == TENANT ? BOLD : i == SHARE ? colour_of(r->share_pct) : PLAIN;
        if (shown >> i & 1) {
            put(page, PLAIN, "%s", i ? " " : "");
            put(page, colour, "%*.*s", columns[i].width, abs(columns[i].width), texts[i]);
        }
    }
    put(page, t->quarantined ? RED : YELLOW, "%s", note_of(t, note));
    put(page, DIM, "%s%s", t->labels[0] ? "  " : "", t->labels); /* as far as there is room */
    end_line(page);
}

static void draw_process(struct page *page, const struct weir_status_rate *r)
{
    char used[16], share[24], sm[24], calls[24], program[4 * sizeof r->program];
    put(page, PLAIN, "%8llu %-16.16s ", (unsigned long long)r->pid, r->tenant);
    put(page, colour_of(r->share_pct), "%7s", number(r->share_pct, "%", share));
    if (page->columns >= BARS_COLUMNS) {
        put(page, PLAIN, " %7s", number(r->sm_pct, "%", sm));
    }
    put(page, PLAIN, " %10s %10s  %s", weir_human_bytes(r->memory_bytes, used),
        number(r->calls_per_s, "", calls), weir_text_visible(r->program, program, sizeof program));
    end_line(page);
}

static void draw_head(struct page *page, const struct weir_status_report *now,
                      enum weir_top_sort sort)
{
    char clock[16];
    time_t wall = time(NULL);
    struct tm local;
    strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&wall, &local));
    put(page, PLAIN, "weir top - %s, up %.0f s, %zu tenants, %zu sessions, %s, by %s", clock,
        now->age_s, now->n_tenants, now->n_sessions, now->run_dir, weir_top_sort_names[sort]);
    if (page->screen->in_place) {
        put(page, DIM, "  (s: sort, q: end)");
    }
    end_line(page);
}

void weir_top_draw(const struct weir_top_screen *screen, const struct weir_status_report *now,
                   const struct weir_top_rates *rates, enum weir_top_sort sort)
{
    struct page page = open_page(screen);
    printf("%s", screen->in_place ? "\033[H" : "");
    draw_head(&page, now, sort);
    for (size_t i = 0; i < rates->n_devices; i++) {
        draw_device(&page, rates->device_of[i], &rates->devices[i]);
    }
    end_line(&page);
    unsigned shown = fitting(&page, rates);
    draw_heads(&page, shown);
    for (size_t i = 0; i < rates->n_tenants; i++) {
        draw_tenant(&page, rates->tenant_of[i], &rates->tenants[i], shown);
    }
    if (rates->n_processes) {
        end_line(&page);
        put(&page, REVERSE, "%8s %-16s %7s%s %10s %10s  %s", "PID", "TENANT", "SHARE",
            page.columns >= BARS_COLUMNS ? "     SMS" : "", "MEMORY", "CALLS/S", "PROGRAM");
        end_line(&page);
    }
    for (size_t i = 0; i < rates->n_processes; i++) {
        draw_process(&page, &rates->processes[i]);
    }
    printf("%s", screen->in_place ? "\033[J" : "\n");
    fflush(stdout);
}
