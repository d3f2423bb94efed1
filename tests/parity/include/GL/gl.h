/* Stands in for OpenGL's header: only the types that cudaGL.h's prototypes name. */
#ifndef WEIR_TESTS_PARITY_GL_H
#define WEIR_TESTS_PARITY_GL_H
typedef unsigned int GLuint;
typedef unsigned int GLenum;
#endif
