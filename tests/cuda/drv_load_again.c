/*
 * The library loaded, closed and loaded again, as plugins and programs that look for a GPU do it;
 * and a thread that has used it and ends after it was closed.
 */
#include "check_driver.h"

#include <pthread.h>

typedef CUresult (*init_fn)(unsigned int);

static void *open_once(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        check_die("%s", dlerror());
    }
    init_fn init = (init_fn)dlsym(library, "cuInit");
    check_int(init ? (int)init(0) : -1, CUDA_SUCCESS, "cuInit");
    return library;
}

static pthread_barrier_t used, closed;

static void *use(void *library)
{
    CUresult (*total)(size_t *, CUdevice) =
        (CUresult(*)(size_t *, CUdevice))dlsym(library, "cuDeviceTotalMem_v2");
    CUresult (*retain)(CUcontext *, CUdevice) =
        (CUresult(*)(CUcontext *, CUdevice))dlsym(library, "cuDevicePrimaryCtxRetain");
    CUresult (*release)(CUdevice) =
        (CUresult(*)(CUdevice))dlsym(library, "cuDevicePrimaryCtxRelease_v2");
    CUcontext context;
    size_t bytes = 0;

    check_int((int)total(&bytes, 0), CUDA_SUCCESS, "used by a thread");
    check_int((int)retain(&context, 0), CUDA_SUCCESS, "a context");
    check_int((int)release(0), CUDA_SUCCESS, "released");
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&closed);
    return NULL;
}

int main(void)
{
    pthread_t thread;

    check_begin("drv_load_again");
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&closed, NULL, 2);
    void *library = open_once();
    pthread_create(&thread, NULL, use, library);
    pthread_barrier_wait(&used);
    dlclose(library);
    pthread_barrier_wait(&closed);
    pthread_join(thread, NULL);
    dlclose(open_once());
    return check_end();
}
