/* The shared library consists of the static ones; CMake wants a source of its own. */
extern const char weir_softgpu_version[];
__attribute__((visibility("hidden"))) const char weir_softgpu_version[] = WEIR_VERSION;
