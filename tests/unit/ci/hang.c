/* A test that never ends: test_watch looks at what is said of it. */
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void *wait_for_what_never_comes(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        pthread_cond_wait(&never, &lock);
    }
    return NULL;
}

int main(void)
{
    wait_for_what_never_comes(NULL);
}
