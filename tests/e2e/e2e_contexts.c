/*
 * Contexts that go while other threads use them (contexts.h).
 *
 * e2e_contexts resets | destroys | releases
 */
#include "tests/e2e/contexts.h"

enum { TIMES = 100 };

int main(int argc, char **argv)
{
    static const char *const ends[] = {"resets", "destroys", "releases"};

    driver_open("e2e_contexts");
    DRV(cu.Init(0));
    for (int i = 0; i < 3; i++) {
        if (argc > 1 && strcmp(argv[1], ends[i]) == 0) {
            contexts_go((enum context_end)i, TIMES);
            return check_end();
        }
    }
    check_die("resets, destroys or releases?");
}
