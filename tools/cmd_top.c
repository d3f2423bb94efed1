/*
 * weir top: what each tenant gets, second by second.
 *
 * Two reports of the host are a frame: rates are differences, and a share is a tenant's part of
 * what all got between them. On a terminal the frame stays in place; elsewhere, and with --batch,
 * frames follow each other as text.
 */
#include "tools/ask.h"
#include "tools/command.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

struct wish {
    const char *run_dir;
    bool batch;
    long long frames; /* 0: no end */
    long long interval_ms;
};

/* What a tenant got between two reports; of counters that began anew, what they have. */
struct got {
    uint64_t sm_ns, in_bytes, out_bytes, wait_ns;
};

static volatile sig_atomic_t told_to_stop;
static struct termios saved_terminal;

static void on_signal(int number)
{
    (void)number;
    told_to_stop = 1;
}

static uint64_t grown(uint64_t before, uint64_t now)
{
    return now >= before ? now - before : now;
}

static struct got got_between(const struct weir_status_report *before,
                              const struct weir_status_tenant *now)
{
    struct got got = {0};
    for (size_t i = 0; i < before->n_tenants; i++) {
        const struct weir_status_tenant *t = &before->tenants[i];
        if (strcmp(t->name, now->name) == 0) {
            got = (struct got){grown(t->service_sm_ns, now->service_sm_ns),
                               grown(t->copy_h2d_bytes, now->copy_h2d_bytes),
                               grown(t->copy_d2h_bytes, now->copy_d2h_bytes),
                               grown(t->wait_ns, now->wait_ns)};
        }
    }
    return got;
}

static void print_line(const char *text, bool in_place)
{
    printf("%s%s\n", text, in_place ? "\033[K" : "");
}

static void print_tenant(const struct weir_status_tenant *t, const struct got *got,
                         uint64_t all_sm_ns, double seconds, bool in_place)
{
    char used[16];
    char quota[16];
    char in[24] = "-";
    char out[24] = "-";
    char share[16] = "-";
    char sm[24] = "-";
    char wait[24] = "-";
    char line[320];
    if (t->scheduled) {
        double part = all_sm_ns ? (double)got->sm_ns / (double)all_sm_ns : 0;
        char rate[16];
        snprintf(share, sizeof(share), "%.1f%%", 100 * part);
        snprintf(sm, sizeof(sm), "%.1f", (double)t->service_sm_ns / 1e9);
        snprintf(in, sizeof(in), "%s/s",
                 weir_human_bytes((unsigned long long)((double)got->in_bytes / seconds), rate));
        snprintf(out, sizeof(out), "%s/s",
                 weir_human_bytes((unsigned long long)((double)got->out_bytes / seconds), rate));
        snprintf(wait, sizeof(wait), "%.0f ms/s", (double)got->wait_ns / 1e6 / seconds);
    }
    snprintf(line, sizeof(line), "%-16.16s %6u %-8s %7s %10s %12s %12s %10s %10s %11s %8u", t->name,
             t->weight, t->priority, share, sm, in, out, weir_human_bytes(t->used_bytes, used),
             weir_human_bytes(t->quota_bytes, quota), wait, t->sessions);
    print_line(line, in_place);
}

/* How many lines a terminal has; a large number where there is none. */
static size_t terminal_lines(bool in_place)
{
    struct winsize size;
    return in_place && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 3 ? size.ws_row
                                                                                       : SIZE_MAX;
}

static void print_frame(const struct weir_status_report *before,
                        const struct weir_status_report *now, bool in_place)
{
    double seconds = now->age_s - before->age_s;
    char line[320];
    char clock[16];
    time_t wall = time(NULL);
    struct tm local;
    uint64_t all_sm_ns = 0;
    size_t room = terminal_lines(in_place) - 3;
    seconds = seconds > 0.001 ? seconds : 0.001;
    strftime(clock, sizeof(clock), "%H:%M:%S", localtime_r(&wall, &local));
    for (size_t i = 0; i < now->n_tenants; i++) {
        all_sm_ns += got_between(before, &now->tenants[i]).sm_ns;
    }
    printf("%s", in_place ? "\033[H" : "");
    snprintf(line, sizeof(line), "weir top - %s, up %.0f s, %zu tenants, %zu sessions, %s", clock,
             now->age_s, now->n_tenants, now->n_sessions, now->run_dir);
    print_line(line, in_place);
    snprintf(line, sizeof(line), "%-16s %6s %-8s %7s %10s %12s %12s %10s %10s %11s %8s", "TENANT",
             "WEIGHT", "PRIORITY", "SHARE", "SM-SECONDS", "TO-DEVICE", "FROM-DEVICE", "MEMORY",
             "QUOTA", "WAIT", "SESSIONS");
    print_line(line, in_place);
    for (size_t i = 0; i < now->n_tenants && i < room; i++) {
        const struct got got = got_between(before, &now->tenants[i]);
        print_tenant(&now->tenants[i], &got, all_sm_ns, seconds, in_place);
    }
    printf("%s", in_place ? "\033[J" : "\n");
    fflush(stdout);
}

static uint64_t monotonic_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Sleep until the frame is due; true: stop (q, a signal). */
static bool wait_for(uint64_t due_ms, bool in_place)
{
    while (!told_to_stop) {
        uint64_t now_ms = monotonic_ms();
        if (now_ms >= due_ms) {
            return false;
        }
        struct pollfd key = {in_place ? STDIN_FILENO : -1, POLLIN, 0};
        if (poll(&key, 1, (int)(due_ms - now_ms)) > 0) {
            char c;
            if (read(STDIN_FILENO, &c, 1) != 1 || c == 'q' || c == 'Q' || c == 3) {
                return true;
            }
        }
    }
    return true;
}

/* Frames until enough were shown, q, a signal, or the host's end. */
static enum weir_status show(const struct wish *wish, struct weir_status_report *before,
                             bool in_place)
{
    uint64_t due_ms = monotonic_ms();
    enum weir_status status = WEIR_OK;
    for (long long i = 0; wish->frames == 0 || i < wish->frames; i++) {
        struct weir_status_report *now;
        due_ms += (uint64_t)wish->interval_ms;
        if (wait_for(due_ms, in_place)) {
            break;
        }
        status = weir_control_status(wish->run_dir, &now);
        if (status != WEIR_OK) {
            break;
        }
        print_frame(before, now, in_place);
        weir_status_report_destroy(before);
        before = now;
        if (ferror(stdout)) {
            break; /* whoever read it has gone */
        }
    }
    weir_status_report_destroy(before);
    return status;
}

/* The terminal's other screen, and keys without Enter; given back by close_terminal(). */
static bool open_terminal(void)
{
    struct sigaction stop = {.sa_handler = on_signal};
    struct termios raw;
    if (tcgetattr(STDIN_FILENO, &saved_terminal) != 0) {
        return false;
    }
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    raw = saved_terminal;
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

static bool parse(int argc, char **argv, struct wish *wish, int *ret_exit)
{
    static char count[] = "--count";
    const char *frames = NULL;
    const char *interval = NULL;
    const struct weir_option options[] = {
        {"batch", NULL, "print frames one after the other (default when stdout is no terminal)",
         NULL, &wish->batch},
        {"count", "N", "end after N frames; also -n N", &frames, NULL},
        {"interval-ms", "MS", "between frames (default 1000)", &interval, NULL},
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
                            "Show what each tenant gets, second by second; q ends it.", options,
                            &first, ret_exit)) {
        return false;
    }
    *ret_exit = WEIR_EXIT_USAGE;
    if (first < argc) {
        fprintf(stderr, "weir top: unexpected '%s'\n", argv[first]);
        return false;
    }
    return (!frames || weir_option_number("count", frames, 1, 1ll << 40, &wish->frames)) &&
           (!interval ||
            weir_option_number("interval-ms", interval, 50, 3600000, &wish->interval_ms));
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
    if (status != WEIR_OK) {
        return weir_ask_failed("top", wish.run_dir, status);
    }
    bool in_place = !wish.batch && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO) && open_terminal();
    status = show(&wish, first, in_place);
    if (in_place) {
        close_terminal();
    }
    return status == WEIR_OK ? WEIR_EXIT_OK : weir_ask_failed("top", wish.run_dir, status);
}
