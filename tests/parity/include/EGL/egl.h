/* Stands in for EGL's header: only the types that cudaEGL.h's prototypes name. */
#ifndef WEIR_TESTS_PARITY_EGL_H
#define WEIR_TESTS_PARITY_EGL_H
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
typedef int EGLint;
#endif
