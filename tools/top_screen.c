/*
 * Lines are cut at the terminal's width and number of rows, so a frame never scrolls. Control
 * characters in programs' names are replaced before the names get here.
 */
#include "tools/top_screen.h"

#include "base/text.h"
#include "tools/command.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define BAR_CELLS 16

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

/* Print "[|||| ] 42%", or a dash for an unknown value. */
static void put_bar(struct page *page, const char *name, double pct)
{
    int cells = isnan(pct) ? 0 : (int)(fmin(fmax(pct, 0), 100) * BAR_CELLS / 100 + 0.5);
    put(page, PLAIN, "  %s [", name);
    put(page, colour_of(pct), "%.*s", cells, "||||||||||||||||");
    put(page, PLAIN, "%*s]", BAR_CELLS - cells, "");
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
    put(page, BOLD, "GPU %u %.24s", d->ordinal, weir_text_visible(d->name, name, sizeof name));
    put_bar(page, "busy", d->utilization_pct);
    put_bar(page, "SMs", rate->sm_pct);
    put_bar(page, "memory", d->memory_bytes ? 100 * used / (double)d->memory_bytes : NAN);
    put(page, PLAIN, " %s of %s  %s  %s", used_text, weir_human_bytes(d->memory_bytes, total),
        number(d->temperature_c, " C", a), number(d->power_w, " W", b));
    end_line(page);
}

static void draw_tenant(struct page *page, const struct weir_status_tenant *t,
                        const struct weir_status_rate *r)
{
    char used[16], quota[16], share[24], in[24], out[24], wait[24], sm[24];
    put(page, BOLD, "%-16.16s", r->tenant);
    put(page, PLAIN, " %6u %-8s ", t->weight, t->priority);
    put(page, colour_of(r->share_pct), "%7s", number(r->share_pct, "%", share));
    put(page, PLAIN, " %7s %10.10s %12s %12s %10s %10s %8s %8u", number(r->sm_pct, "%", sm),
        number(r->sm_s, "", (char[24]){0}), number(r->to_device_bytes_per_s, "bytes/s", in),
        number(r->from_device_bytes_per_s, "bytes/s", out), weir_human_bytes(r->memory_bytes, used),
        weir_human_bytes(r->quota_bytes, quota), number(r->wait_pct, "%", wait), r->sessions);
    if (t->quarantined) {
        put(page, RED, "  quarantined");
    }
    if (t->drained) {
        put(page, YELLOW, "  drained");
    }
    uint64_t refused = t->refused_device + t->refused_pinned;
    if (refused) {
        put(page, YELLOW, "  refused %llu", (unsigned long long)refused);
    }
    end_line(page);
}

static void draw_process(struct page *page, const struct weir_status_rate *r)
{
    char used[16], share[24], sm[24], calls[24], program[4 * sizeof r->program];
    put(page, PLAIN, "%8llu %-16.16s ", (unsigned long long)r->pid, r->tenant);
    put(page, colour_of(r->share_pct), "%7s", number(r->share_pct, "%", share));
    put(page, PLAIN, " %7s %10s %10s  %s", number(r->sm_pct, "%", sm),
        weir_human_bytes(r->memory_bytes, used), number(r->calls_per_s, "", calls),
        weir_text_visible(r->program, program, sizeof program));
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
    put(&page, REVERSE, "%-16s %6s %-8s %7s %7s %10s %12s %12s %10s %10s %8s %8s", "TENANT",
        "WEIGHT", "PRIORITY", "SHARE", "SMS", "SM-SECONDS", "TO-DEVICE", "FROM-DEVICE", "MEMORY",
        "QUOTA", "WAIT", "SESSIONS");
    end_line(&page);
    for (size_t i = 0; i < rates->n_tenants; i++) {
        draw_tenant(&page, rates->tenant_of[i], &rates->tenants[i]);
    }
    if (rates->n_processes) {
        end_line(&page);
        put(&page, REVERSE, "%8s %-16s %7s %7s %10s %10s  %s", "PID", "TENANT", "SHARE", "SMS",
            "MEMORY", "CALLS/S", "PROGRAM");
        end_line(&page);
    }
    for (size_t i = 0; i < rates->n_processes; i++) {
        draw_process(&page, &rates->processes[i]);
    }
    printf("%s", screen->in_place ? "\033[J" : "\n");
    fflush(stdout);
}
