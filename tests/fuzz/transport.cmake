# The ring against a hostile peer, and the handshake's messages.
weir_fuzz(fuzz_ring SOURCES "${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_ring.c"
          CORPUS "${CMAKE_SOURCE_DIR}/tests/data/fuzz/ring" DEPS weir_transport)
weir_fuzz(fuzz_control SOURCES "${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_control.c"
          CORPUS "${CMAKE_SOURCE_DIR}/tests/data/fuzz/control" DEPS weir_connect)
weir_fuzz(fuzz_stream SOURCES "${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_stream.c"
          CORPUS "${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/stream" DEPS weir_transport)
