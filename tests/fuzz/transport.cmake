# The ring against a hostile peer, and the handshake's messages.
weir_fuzz(fuzz_ring SOURCES "${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_ring.c"
          CORPUS "${CMAKE_SOURCE_DIR}/tests/data/fuzz/ring" DEPS weir_transport)
weir_fuzz(fuzz_control SOURCES "${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_control.c"
          CORPUS "${CMAKE_SOURCE_DIR}/tests/data/fuzz/control" DEPS weir_connect)
weir_fuzz(fuzz_stream SOURCES "${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_stream.c"
          CORPUS "${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/stream" DEPS weir_transport)
# The ZeroMQ server over a script's messages.
if(WEIR_WITH_ZMQ)
    weir_fuzz(fuzz_zmq SOURCES "${CMAKE_SOURCE_DIR}/tests/fuzz/fuzz_zmq.c"
              CORPUS "${CMAKE_SOURCE_DIR}/tests/fuzz/corpus/zmq" DEPS weir_accept)
    foreach(program fuzz_zmq fuzz_zmq_replay)
        foreach(name poll zmq_msg_recv zmq_msg_more zmq_msg_get zmq_msg_gets zmq_msg_send zmq_send
                     zmq_getsockopt)
            if(TARGET ${program})
                target_link_options(${program} PRIVATE "LINKER:--wrap=${name}")
            endif()
        endforeach()
    endforeach()
endif()
