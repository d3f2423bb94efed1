/*
 * weir top: show what each device, tenant and process gets, refreshed every second.
 *
 * A frame shows the difference between two reports of the host: rates, and each tenant's share of
 * the time that all tenants got. On a terminal the frame stays in place; elsewhere, and with
 * --batch, frames follow each other as text. Keys: q ends, s sorts by the next column.
 */
#include "host_backend/config/status_text.h"
#include "tools/ask.h"
#include "tools/command.h"
#include "tools/top_screen.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

struct wish {
    const char *run_dir;
    bool batch, once, json;
    enum weir_top_sort sort;
    long long frames; /* 0: endless */
    long long interval_ms;
};

static volatile sig_atomic_t told_to_stop;
static struct termios saved_terminal;

static void on_signal(int number)
{
    (void)number;
    told_to_stop = 1;
}

/* Print the rows of a frame. */
static void print_json(const struct weir_top_rates *rates)
{
    for (size_t i = 0; i < rates->n_devices; i++) {
        weir_status_text_device(stdout, rates->device_of[i]);
        weir_status_text_rate(stdout, "device_rate", &rates->devices[i]);
    }
    for (size_t i = 0; i < rates->n_tenants; i++) {
        weir_status_text_rate(stdout, "tenant_rate", &rates->tenants[i]);
    }
    for (size_t i = 0; i < rates->n_processes; i++) {
        weir_status_text_rate(stdout, "process_rate", &rates->processes[i]);
    }
    fflush(stdout);
}

static bool print_frame(const struct wish *wish, const struct weir_top_screen *screen,
                        const struct weir_status_report *before,
                        const struct weir_status_report *now)
{
    struct weir_top_rates rates;
    WEIR_FAIL_IF(!weir_top_rates_make(before, now, wish->sort, &rates), false);
    if (wish->json) {
        print_json(&rates);
    } else {
        weir_top_draw(screen, now, &rates, wish->sort);
    }
    weir_top_rates_finish(&rates);
    return true;
}

static uint64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

enum key { KEY_NONE, KEY_END, KEY_SORT };

static enum key read_key(void)
{
    char c;
    if (read(STDIN_FILENO, &c, 1) != 1 || c == 'q' || c == 'Q' || c == 3) {
        return KEY_END;
    }
    return c == 's' || c == 'S' ? KEY_SORT : KEY_NONE;
}

/* Sleep until the frame is due or a key is hit. */
static enum key wait_for(uint64_t due_ms, bool in_place)
{
    while (!told_to_stop) {
        uint64_t now_ms = monotonic_ms();
        if (now_ms >= due_ms) {
            return KEY_NONE;
        }
        struct pollfd input = {in_place ? STDIN_FILENO : -1, POLLIN, 0};
        if (poll(&input, 1, (int)(due_ms - now_ms)) > 0) {
            enum key key = read_key();
            if (key != KEY_NONE) {
                return key;
            }
        }
    }
    return KEY_END;
}

/* Show frames until enough were shown, q is hit, a signal comes, or the host ends. */
static enum weir_status show(struct wish *wish, const struct weir_top_screen *screen,
                             struct weir_status_report *before)
{
    struct weir_status_report *now = NULL; /* report that the last frame showed against `before` */
    uint64_t due_ms = monotonic_ms() + (uint64_t)wish->interval_ms;
    enum weir_status status = WEIR_OK;
    for (long long i = 0; wish->frames == 0 || i < wish->frames;) {
        enum key key = wait_for(due_ms, screen->in_place);
        if (key == KEY_END) {
            break;
        }
        if (key == KEY_SORT) {
            wish->sort = (wish->sort + 1) % WEIR_TOP_SORT_COUNT;
            if (now) { /* show the same numbers in another order */
                (void)print_frame(wish, screen, before, now);
            }
            continue;
        }
        if (now) {
            weir_status_report_destroy(before);
            before = now;
            now = NULL;
        }
        due_ms += (uint64_t)wish->interval_ms;
        status = weir_control_status(wish->run_dir, &now);
        if (status == WEIR_OK && !print_frame(wish, screen, before, now)) {
            status = WEIR_ERR_NO_MEMORY;
        }
        if (status != WEIR_OK || ferror(stdout)) {
            break; /* the host or the reader of the output has ended */
        }
        i++;
    }
    weir_status_report_destroy(now);
    weir_status_report_destroy(before);
    return status;
}

/* Switch to the terminal's other screen, and get keys without Enter; close_terminal() undoes it. */
static bool open_terminal(void)
{
    struct sigaction stop = {.sa_handler = on_signal};
    if (tcgetattr(STDIN_FILENO, &saved_terminal) != 0) {
        return false;
    }
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    struct termios raw = saved_terminal;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    printf("\033[?1049h\033[?25l");
    return true;
}

static void close_terminal(void)
{
    printf("\033[?25h\033[?1049l");
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &saved_terminal);
}

static bool find_sort(const char *name, enum weir_top_sort *ret_sort)
{
    for (int i = 0; i < WEIR_TOP_SORT_COUNT; i++) {
        if (strcmp(weir_top_sort_names[i], name) == 0) {
            *ret_sort = (enum weir_top_sort)i;
            return true;
        }
    }
    fprintf(stderr, "weir top: --sort is share, memory, wait, copies or name\n");
    return false;
}

static bool parse(int argc, char **argv, struct wish *wish, int *ret_exit)
{
    static char count[] = "--count";
    const char *frames = NULL;
    const char *interval = NULL;
    const char *sort = "share";
    const struct weir_option options[] = {
        {"once", NULL, "print one frame as text, and end", NULL, &wish->once},
        {"batch", NULL, "print frames one after the other (default when stdout is no terminal)",
         NULL, &wish->batch},
        {"count", "N", "end after N frames; also -n N", &frames, NULL},
        {"interval-ms", "MS", "between frames (default 1000)", &interval, NULL},
        {"sort", "share|memory|wait|copies|name", "by what rows are sorted (default share)", &sort,
         NULL},
        {"json", NULL, "one JSON object a line", NULL, &wish->json},
        {"run-dir", "DIR", "where the host's sockets are", &wish->run_dir, NULL},
        {.name = NULL},
    };
    int first;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-n") == 0) {
            argv[i] = count;
        }
    }
    if (!weir_options_parse(argc, argv, "[OPTIONS]",
                            "Show what devices, tenants and processes get, second by second.\n"
                            "Keys: q ends it, s sorts by the next column.",
                            options, &first, ret_exit)) {
        return false;
    }
    *ret_exit = WEIR_EXIT_USAGE;
    wish->frames = wish->once ? 1 : 0;
    return (!frames || weir_option_number("count", frames, 1, 1ll << 40, &wish->frames)) &&
           (!interval ||
            weir_option_number("interval-ms", interval, 50, 3600000, &wish->interval_ms)) &&
           find_sort(sort, &wish->sort);
}

static bool is_terminal(void)
{
    const char *kind = getenv("TERM");
    return isatty(STDOUT_FILENO) && kind && strcmp(kind, "dumb") != 0;
}

/* As https://no-color.org says: the variable is set and not empty. */
static bool is_colourless(void)
{
    const char *none = getenv("NO_COLOR");
    return none && *none;
}

int weir_cmd_top(int argc, char **argv)
{
    struct wish wish = {.interval_ms = 1000};
    struct weir_status_report *first;
    int exit_status;
    if (!parse(argc, argv, &wish, &exit_status)) {
        return exit_status;
    }
    enum weir_status status = weir_control_status(wish.run_dir, &first);
    WEIR_FAIL_IF(status != WEIR_OK, weir_ask_failed("top", wish.run_dir, status));
    bool terminal = is_terminal() && !wish.json;
    struct weir_top_screen screen = {.in_place = terminal && !wish.batch && !wish.once &&
                                                 isatty(STDIN_FILENO) && open_terminal(),
                                     .colours = terminal && !is_colourless()};
    status = show(&wish, &screen, first);
    if (screen.in_place) {
        close_terminal();
    }
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_ask_failed("top", wish.run_dir, status);
}
