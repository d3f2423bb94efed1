/*
 * PTX instructions on a real GPU and on softgpu: record what one gives, check that the other gives
 * the same.
 *
 *   instructions record [--libcuda FILE] [--cases FOLDER] [--jobs N] FOLDER [NAME ...]
 *   instructions check  [--libcuda FILE] [--cases FOLDER] [--jobs N] FOLDER [NAME ...]
 *
 * Runs every case of --cases (which generate.py writes; see case.h) on the driver that it loads,
 * and writes the outputs to FOLDER/NAME.rec or compares them with what lies there. Names are whole
 * or end in a '*'. One line for each case that is not well; exit status 0 when all that was tried
 * was well, 1 when something was not, 77 when nothing could be tried or nothing was recorded.
 *
 * A recording that was cut off goes on where it ended: what is recorded in FOLDER and still fits
 * its case is left alone. Cases run in several child processes at once (most of the time goes into
 * the driver's translation), each of which is replaced when a kernel broke its context; so one bad
 * case costs one line, not the rest.
 */
#include "tests/instructions/record.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CASE_LIMIT_S 15
#define MAX_NAMES    4096
#define MAX_JOBS     16

/* Between parent and children, in shared memory; the counters are atomic. */
struct progress {
    uint32_t next; /* case to begin */
    uint32_t good, bad, skipped, kept;
    uint32_t current[MAX_JOBS]; /* what each child is at */
    char device[MAX_JOBS][200];
};

static struct {
    bool record;
    const char *library;
    const char *cases;
    const char *folder;
    char *names[MAX_NAMES];
    uint32_t n_names;
    uint32_t n_jobs;
    uint32_t job; /* of a child */
    pid_t children[MAX_JOBS];
    struct progress *progress;
} self;

static void count(uint32_t *counter)
{
    __atomic_fetch_add(counter, 1, __ATOMIC_RELAXED);
}

static bool wanted(const char *name, char **patterns, int n)
{
    for (int k = 0; k < n; k++) {
        size_t length = strlen(patterns[k]);
        bool prefix = length != 0 && patterns[k][length - 1] == '*';
        if (prefix ? strncmp(name, patterns[k], length - 1) == 0 : strcmp(name, patterns[k]) == 0) {
            return true;
        }
    }
    return n == 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool list_cases(char **patterns, int n_patterns)
{
    DIR *dir = opendir(self.cases);
    if (!dir) {
        perror(self.cases);
        return false;
    }
    for (struct dirent *e = readdir(dir); e && self.n_names < MAX_NAMES; e = readdir(dir)) {
        char *name = strdup(e->d_name);
        size_t length = name ? strlen(name) : 0;
        if (length > 4 && strcmp(name + length - 4, ".ptx") == 0) {
            name[length - 4] = '\0';
            if (wanted(name, patterns, n_patterns)) {
                self.names[self.n_names++] = name;
                continue;
            }
        }
        free(name);
    }
    closedir(dir);
    qsort(self.names, self.n_names, sizeof self.names[0], by_name);
    return true;
}

static void say(const char *name, const char *outcome, const char *why)
{
    printf("%-28s %s: %s\n", name, outcome, why);
    fflush(stdout);
}

/* Count and say an outcome: 'g', 'b' or 's'. */
static void settle(const char *name, char outcome, const char *why)
{
    if (outcome == 'g') {
        count(&self.progress->good);
    } else if (outcome == 'b') {
        count(&self.progress->bad);
        say(name, "FAIL", why);
    } else {
        count(&self.progress->skipped);
        say(name, "skipped", why);
    }
}

static void check_case(const struct test_case *c, const uint64_t *inputs, const void *outputs,
                       void *recorded)
{
    switch (record_read(c, self.folder, case_key(c, inputs), recorded,
                        self.progress->device[self.job], sizeof self.progress->device[0])) {
    case RECORD_OK:
        break;
    case RECORD_MISSING:
        settle(c->name, 's', "ran, but nothing is recorded to compare with");
        return;
    case RECORD_STALE:
        settle(c->name, 's', "ran, but the record is of another program or other inputs");
        return;
    case RECORD_BROKEN:
        settle(c->name, 'b', "the record cannot be read");
        return;
    }
    uint32_t wrong = case_compare(c, inputs, outputs, recorded, 2);
    if (wrong == 0) {
        settle(c->name, 'g', "");
        return;
    }
    char why[80];
    snprintf(why, sizeof why, "%u of %u results differ", wrong, c->n_results * c->threads);
    settle(c->name, 'b', why);
}

static void run_case(const struct driver_device *device, struct test_case *c)
{
    uint64_t *inputs = calloc(1, case_input_bytes(c) + 8);
    void *outputs = calloc(1, case_output_bytes(c));
    void *recorded = calloc(1, case_output_bytes(c));
    char why[1200];
    if (!inputs || !outputs || !recorded || !case_inputs(c, inputs)) {
        settle(c->name, 'b', "inputs cannot be made");
        goto out;
    }
    char device_name[200];
    if (self.record && record_read(c, self.folder, case_key(c, inputs), recorded, device_name,
                                   sizeof device_name) == RECORD_OK) {
        count(&self.progress->kept);
        goto out;
    }
    enum driver_outcome outcome = driver_run(c, inputs, outputs, why, sizeof why);
    if (outcome != DRIVER_OK) {
        settle(c->name, 'b', why);
    } else if (!self.record) {
        check_case(c, inputs, outputs, recorded);
    } else if (record_write(c, self.folder, case_key(c, inputs), outputs, device)) {
        settle(c->name, 'g', "");
    } else {
        settle(c->name, 'b', strerror(errno));
    }
    if (outcome == DRIVER_BROKEN) {
        fflush(stdout);
        _exit(3);
    }
out:
    free(inputs);
    free(outputs);
    free(recorded);
}

/* A child: one case after the other, until none is left. */
static void work(void)
{
    struct driver_device device;
    driver_open(self.library, &device);
    snprintf(self.progress->device[self.job], sizeof self.progress->device[0], "%s", device.name);
    for (;;) {
        uint32_t at = __atomic_fetch_add(&self.progress->next, 1, __ATOMIC_RELAXED);
        if (at >= self.n_names) {
            break;
        }
        self.progress->current[self.job] = at;
        struct test_case c;
        alarm(CASE_LIMIT_S);
        if (case_read(&c, self.cases, self.names[at])) {
            run_case(&device, &c);
        } else {
            settle(self.names[at], 'b', "cannot be read");
        }
        case_finish(&c);
    }
    alarm(0);
    fflush(stdout);
    _exit(0);
}

static bool start_child(uint32_t job)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return false;
    }
    if (child == 0) {
        self.job = job;
        work();
    }
    self.children[job] = child;
    return true;
}

/* A child has ended: say why if it did not mean to. @return false when there is no driver */
static bool child_ended(uint32_t job, int status)
{
    self.children[job] = 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        return false;
    }
    if (WIFSIGNALED(status)) {
        settle(self.names[self.progress->current[job]], 'b',
               WTERMSIG(status) == SIGALRM ? "did not end in time" : strsignal(WTERMSIG(status)));
    }
    bool left = __atomic_load_n(&self.progress->next, __ATOMIC_RELAXED) < self.n_names;
    bool meant = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return meant || !left || start_child(job);
}

/* @return false when there is no driver to run on */
static bool run_all(void)
{
    bool good = true;
    for (uint32_t job = 0; job < self.n_jobs && good; job++) {
        good = start_child(job);
    }
    for (;;) {
        int status = 0;
        pid_t child = waitpid(-1, &status, 0);
        if (child < 0 && errno == EINTR) {
            continue;
        }
        if (child < 0) {
            return good;
        }
        for (uint32_t job = 0; job < self.n_jobs; job++) {
            if (self.children[job] == child) {
                good = child_ended(job, status) && good;
            }
        }
    }
}

/* Half of the processors: the driver translates with more than one thread. */
static uint32_t usual_jobs(void)
{
    long n = sysconf(_SC_NPROCESSORS_ONLN) / 2;
    return n < 1 ? 1 : n > 8 ? 8 : (uint32_t)n;
}

static int usage(void)
{
    fprintf(stderr, "usage: instructions record|check [--libcuda FILE] [--cases FOLDER] "
                    "[--jobs N] FOLDER [NAME ...]\n");
    return 2;
}

int main(int argc, char **argv)
{
    int at = 2;
    self.library = "libcuda.so.1";
    self.cases = "cases";
    self.n_jobs = usual_jobs();
    if (argc < 3 || (strcmp(argv[1], "record") != 0 && strcmp(argv[1], "check") != 0)) {
        return usage();
    }
    self.record = strcmp(argv[1], "record") == 0;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--libcuda") == 0) {
            self.library = argv[at + 1];
        } else if (strcmp(argv[at], "--cases") == 0) {
            self.cases = argv[at + 1];
        } else if (strcmp(argv[at], "--jobs") == 0 && atoi(argv[at + 1]) > 0 &&
                   atoi(argv[at + 1]) <= MAX_JOBS) {
            self.n_jobs = (uint32_t)atoi(argv[at + 1]);
        } else {
            return usage();
        }
    }
    if (at >= argc) {
        return usage();
    }
    self.folder = argv[at++];
    if (self.record && mkdir(self.folder, 0777) != 0 && errno != EEXIST) {
        perror(self.folder);
        return 1;
    }
    self.progress = mmap(NULL, sizeof *self.progress, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (self.progress == MAP_FAILED || !list_cases(argv + at, argc - at)) {
        return 1;
    }
    if (!run_all()) {
        return 77;
    }
    struct progress *p = self.progress;
    printf("%u cases: %u %s, %u failed, %u skipped, %u recorded before (%s)\n", self.n_names,
           p->good, self.record ? "recorded" : "as recorded", p->bad, p->skipped, p->kept,
           p->device[0]);
    return p->bad != 0 ? 1 : p->good + p->kept == 0 ? 77 : 0;
}
