/* Stands in for OpenGL's header: only the types that cudaGL.h's prototypes name. */
#pragma once
typedef unsigned int GLuint;
typedef unsigned int GLenum;
