# Every build option of Weir, documented once. ci/test builds both values of the WEIR_WITH_ options
# (where what they need is installed) and every value of WEIR_SANITIZE that is named here, always
# with WEIR_WERROR and with tests, so WEIR_BUILD_DEMO changes nothing there. WEIR_FUZZ is for
# ci/test --full; WEIR_COVERAGE is not built there: its preset is called coverage.

option(WEIR_WITH_ZMQ "Build the ZeroMQ transport (ipc and tcp); needs libzmq" ON)
option(WEIR_WITH_LIBVIRT
       "Build weir-libvirt, which follows domains' metadata, where libvirt and libxml2 are found" ON)
option(WEIR_WITH_OCI_HOOK "Build weir-oci-hook, for containers' shares on demand, where jansson is found" ON)
option(WEIR_WITH_SLURM "Build weir_spank.so, the plugin of Slurm, where slurm/spank.h is found" ON)
option(WEIR_WITH_KUBERNETES
       "Build weir-dra, the driver for Kubernetes, where libnghttp2, libcurl and jansson are found" ON)
option(WEIR_WITH_EXPORT_TABLES
       "Answer the undocumented tables and the handshake that unmodified libcudart asks for" ON)
option(WEIR_BUILD_DEMO
       "Build the guest programs of ci/demo and ci/bundle also without BUILD_TESTING" OFF)
option(WEIR_WERROR "Treat warnings as errors (CI does)" OFF)
option(WEIR_FUZZ "Build the fuzz targets with libFuzzer (needs clang); otherwise they replay a corpus" OFF)
set(WEIR_FUZZ_SECONDS 20 CACHE STRING "For how long the tests of the label fuzzing run each fuzz target")
option(WEIR_COVERAGE "Instrument for gcov" OFF)
set(WEIR_SANITIZE "" CACHE STRING "Sanitizers to build with: empty, 'address,undefined' or 'thread'")
