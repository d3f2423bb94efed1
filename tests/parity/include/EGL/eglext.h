/* Stands in for EGL's extension header, of which cudaEGL.h needs nothing more. */
