/* The shared library consists of static libraries, but CMake requires at least one source file. */
extern const char weir_softgpu_version[];
__attribute__((visibility("hidden"))) const char weir_softgpu_version[] = WEIR_VERSION;
