/* Stands in for EGL's header: only the types that cudaEGL.h's prototypes name. */
#pragma once
typedef void *EGLImageKHR;
typedef void *EGLStreamKHR;
typedef void *EGLSyncKHR;
typedef int EGLint;
