/*
 * PTX instructions on a real GPU and on softgpu: record what one gives, check that the other gives
 * the same.
 *
 *   instructions record [--libcuda FILE] [--cases FOLDER] FOLDER [NAME ...]
 *   instructions check  [--libcuda FILE] [--cases FOLDER] FOLDER [NAME ...]
 *
 * Runs every case of --cases (tests/data/ptx; see case.h) on the driver that it loads, and writes
 * the outputs to FOLDER/NAME.rec or compares them with what lies there. Names are whole or end in
 * a '*'. One line for each case that is not well; exit status 0 when all that was tried was well,
 * 1 when something was not, 77 when nothing could be tried or nothing was recorded.
 *
 * Cases run in a child process that is replaced when a kernel broke its context; so one bad case
 * costs one line, not the rest.
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

#define CASE_LIMIT_S 60
#define MAX_NAMES    4096

/* Between parent and child, in shared memory. */
struct progress {
    uint32_t next; /* case under way */
    uint32_t good, bad, skipped;
    char device[200];
};

static struct {
    bool record;
    const char *library;
    const char *cases;
    const char *folder;
    char *names[MAX_NAMES];
    uint32_t n_names;
    struct progress *progress;
} self;

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
    if (dir == NULL) {
        perror(self.cases);
        return false;
    }
    for (struct dirent *e = readdir(dir); e != NULL && self.n_names < MAX_NAMES; e = readdir(dir)) {
        char *name = strdup(e->d_name);
        size_t length = name != NULL ? strlen(name) : 0;
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
        self.progress->good++;
    } else if (outcome == 'b') {
        self.progress->bad++;
        say(name, "FAIL", why);
    } else {
        self.progress->skipped++;
        say(name, "skipped", why);
    }
}

static void check_case(const struct test_case *c, const uint64_t *inputs, const void *outputs,
                       void *recorded)
{
    switch (record_read(c, self.folder, case_key(c, inputs), recorded, self.progress->device,
                        sizeof self.progress->device)) {
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
    if (inputs == NULL || outputs == NULL || recorded == NULL || !case_inputs(c, inputs)) {
        settle(c->name, 'b', "inputs cannot be made");
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
        self.progress->next++;
        fflush(stdout);
        _exit(3);
    }
out:
    free(inputs);
    free(outputs);
    free(recorded);
}

/* The child: cases from progress->next on. */
static void work(void)
{
    struct driver_device device;
    driver_open(self.library, &device);
    snprintf(self.progress->device, sizeof self.progress->device, "%s", device.name);
    for (; self.progress->next < self.n_names; self.progress->next++) {
        struct test_case c;
        const char *name = self.names[self.progress->next];
        alarm(CASE_LIMIT_S);
        if (case_read(&c, self.cases, name)) {
            run_case(&device, &c);
        } else {
            settle(name, 'b', "cannot be read");
        }
        case_finish(&c);
    }
    alarm(0);
    fflush(stdout);
    _exit(0);
}

/* @return false when there is no driver to run on */
static bool run_child(void)
{
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
        perror("fork");
        return false;
    }
    if (child == 0) {
        work();
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        return false;
    }
    if (WIFSIGNALED(status)) {
        settle(self.names[self.progress->next++], 'b',
               WTERMSIG(status) == SIGALRM ? "did not end in time" : strsignal(WTERMSIG(status)));
    }
    return true;
}

static int usage(void)
{
    fprintf(stderr, "usage: instructions record|check [--libcuda FILE] [--cases FOLDER] FOLDER "
                    "[NAME ...]\n");
    return 2;
}

int main(int argc, char **argv)
{
    int at = 2;
    self.library = "libcuda.so.1";
    self.cases = "tests/data/ptx";
    if (argc < 3 || (strcmp(argv[1], "record") != 0 && strcmp(argv[1], "check") != 0)) {
        return usage();
    }
    self.record = strcmp(argv[1], "record") == 0;
    for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
        if (strcmp(argv[at], "--libcuda") == 0) {
            self.library = argv[at + 1];
        } else if (strcmp(argv[at], "--cases") == 0) {
            self.cases = argv[at + 1];
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
    while (self.progress->next < self.n_names) {
        if (!run_child()) {
            return 77;
        }
    }
    struct progress *p = self.progress;
    printf("%u cases: %u %s, %u failed, %u skipped (%s)\n", self.n_names, p->good,
           self.record ? "recorded" : "as recorded", p->bad, p->skipped, p->device);
    return p->bad != 0 ? 1 : p->good == 0 ? 77 : 0;
}
