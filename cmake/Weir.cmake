# The few functions that every folder's CMakeLists.txt is made of. Targets only: no global flags.

find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
find_package(Python3 3.11 REQUIRED COMPONENTS Interpreter)
if(BUILD_TESTING)
    pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()

# Flags that every hand-written C file of Weir is compiled with.
add_library(weir_flags INTERFACE)
target_compile_features(weir_flags INTERFACE c_std_11)
target_compile_definitions(weir_flags INTERFACE _GNU_SOURCE WEIR_VERSION="${PROJECT_VERSION}")
target_compile_options(weir_flags INTERFACE
    -std=gnu11 -g -fno-common
    -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wswitch-enum -Wvla
    -Wformat=2 -Wundef -Wpointer-arith -Wwrite-strings
    $<$<BOOL:${WEIR_WERROR}>:-Werror>)
target_link_libraries(weir_flags INTERFACE Threads::Threads)
if(WEIR_SANITIZE)
    target_compile_options(weir_flags INTERFACE -fsanitize=${WEIR_SANITIZE} -fno-omit-frame-pointer
                           -fno-sanitize-recover=all)
    target_link_options(weir_flags INTERFACE -fsanitize=${WEIR_SANITIZE})
endif()
if(WEIR_FUZZ)
    # Coverage of the libraries too, or the fuzzer works blind.
    target_compile_options(weir_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
if(WEIR_SANITIZE MATCHES "thread" AND CMAKE_C_COMPILER_ID STREQUAL "GNU")
    # gcc says that TSan does not model fences; it then takes the code for racier than it is, not safer.
    target_compile_options(weir_flags INTERFACE -Wno-tsan)
endif()
if(WEIR_COVERAGE)
    target_compile_options(weir_flags INTERFACE --coverage)
    target_link_options(weir_flags INTERFACE --coverage)
endif()

# Include roots. ci/layers.txt names the folders and says which may use which. For each of them there is
# build/roots/<folder, dots for slashes>/<folder>/ with links to its headers, so that with the root on the compiler's
# path "<folder>/<header>.h" names them and nothing else. WEIR_REACH_<folder> lists the folder, and those that it may
# use directly or through others, because headers include headers.
set(layers "${CMAKE_SOURCE_DIR}/ci/layers.txt")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${layers}")
set(WEIR_FOLDERS "")
file(STRINGS "${layers}" lines)
foreach(line IN LISTS lines)
    string(REGEX REPLACE "#.*" "" line "${line}")
    if(line MATCHES "^(.*)->(.*)$")
        separate_arguments(users UNIX_COMMAND "${CMAKE_MATCH_1}")
        separate_arguments(used UNIX_COMMAND "${CMAKE_MATCH_2}")
        list(APPEND WEIR_FOLDERS ${users} ${used})
        foreach(user IN LISTS users)
            list(APPEND WEIR_REACH_${user} "${user}" ${used})
        endforeach()
    endif()
endforeach()
list(REMOVE_DUPLICATES WEIR_FOLDERS)
foreach(middle IN LISTS WEIR_FOLDERS) # as in Warshall's algorithm
    foreach(user IN LISTS WEIR_FOLDERS)
        if(middle IN_LIST WEIR_REACH_${user})
            list(APPEND WEIR_REACH_${user} ${WEIR_REACH_${middle}})
            list(REMOVE_DUPLICATES WEIR_REACH_${user})
        endif()
    endforeach()
endforeach()
file(REMOVE_RECURSE "${CMAKE_BINARY_DIR}/roots")
foreach(folder IN LISTS WEIR_FOLDERS)
    string(REPLACE "/" "." root "${folder}")
    set(root "${CMAKE_BINARY_DIR}/roots/${root}")
    file(MAKE_DIRECTORY "${root}/${folder}")
    file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/${folder}/*.h" "${CMAKE_SOURCE_DIR}/${folder}/*.def")
    foreach(header IN LISTS headers)
        cmake_path(GET header FILENAME file)
        file(CREATE_LINK "${header}" "${root}/${folder}/${file}" SYMBOLIC)
    endforeach()
    set(WEIR_ROOT_${folder} "${root}")
endforeach()
list(APPEND WEIR_ROOT_proto "${CMAKE_BINARY_DIR}/gen") # what the generator writes

# weir_includes(TARGET)
#
# What the target's sources may include: in one of the folders above, the headers of the folders that it may use; in
# tests/, everything. Nobody inherits it: a library's users have their own.
function(weir_includes target)
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY "${CMAKE_SOURCE_DIR}" OUTPUT_VARIABLE folder)
    if(folder MATCHES "^tests(/|$)")
        target_include_directories(${target} PRIVATE "${CMAKE_SOURCE_DIR}" "${CMAKE_BINARY_DIR}/gen")
    elseif(folder IN_LIST WEIR_FOLDERS)
        foreach(used IN LISTS WEIR_REACH_${folder})
            target_include_directories(${target} PRIVATE ${WEIR_ROOT_${used}})
        endforeach()
    else()
        message(FATAL_ERROR "ci/layers.txt does not name ${folder}, the folder of ${target}")
    endif()
endfunction()

# weir_library(NAME SOURCES a.c .. [DEPS t ..] [PRIVATE_DEPS t ..])
#
# A static, position-independent library with hidden symbols: one per folder. It includes headers by
# their path from the top of the source tree, as "<folder>/<header>.h".
function(weir_library name)
    cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
    add_library(${name} STATIC ${ARG_SOURCES})
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
    weir_includes(${name})
    target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE weir_flags ${ARG_PRIVATE_DEPS})
endfunction()

# weir_test(NAME SOURCES a.c .. [DEPS t ..] LABEL unit|integration|e2e|gpu|fuzz|bench [TIMEOUT s])
#
# One cmocka executable. Exit status 77 is "skipped". WEIR_TEST_FILTER chooses tests (tl_filter.c).
function(weir_test name)
    cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;DEPS;ENV" ${ARGN})
    add_executable(${name} ${ARG_SOURCES} "${CMAKE_SOURCE_DIR}/tests/lib/tl_filter.c"
                   "${CMAKE_SOURCE_DIR}/tests/lib/tl_watch.c")
    weir_includes(${name})
    target_compile_definitions(${name} PRIVATE WEIR_TEST_DATA="${CMAKE_SOURCE_DIR}/tests/data")
    target_link_libraries(${name} PRIVATE ${ARG_DEPS} weir_flags PkgConfig::CMOCKA)
    add_test(NAME ${name} COMMAND ${name})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 300) # bounds a hang, also on a busy machine
    endif()
    if(WEIR_SANITIZE MATCHES "thread") # ten times slower, and more where there are few cores
        math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 5")
        # A suppression needs both stacks: remember them for as long as TSan can.
        list(APPEND ARG_ENV
             "TSAN_OPTIONS=history_size=7:suppressions=${CMAKE_SOURCE_DIR}/tests/tsan.supp")
    endif()
    math(EXPR limit "${ARG_TIMEOUT} - 10") # says where it hangs (tl_watch.c) before it is killed
    list(APPEND ARG_ENV "WEIR_TEST_LIMIT_S=${limit}")
    # cmocka says that a group's teardown has failed, but does not count it.
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
                         SKIP_RETURN_CODE 77 ENVIRONMENT "${ARG_ENV}"
                         FAIL_REGULAR_EXPRESSION "FAILED  \\] GROUP TEARDOWN")
endfunction()

# weir_script_test(NAME SCRIPT file [ARGS a ..] LABEL unit|integration|e2e|gpu [TIMEOUT s] [ENV a=b ..])
#
# A test in Python. Exit status 77 is "skipped". It says where it hangs before ctest kills it.
function(weir_script_test name)
    cmake_parse_arguments(ARG "" "SCRIPT;LABEL;TIMEOUT" "ARGS;ENV" ${ARGN})
    if(NOT ARG_TIMEOUT)
        set(ARG_TIMEOUT 300)
    endif()
    math(EXPR limit "${ARG_TIMEOUT} - 10")
    add_test(NAME ${name} COMMAND "${Python3_EXECUTABLE}" -B "${CMAKE_SOURCE_DIR}/tests/lib/limited.py" ${limit}
             "${ARG_SCRIPT}" ${ARG_ARGS})
    set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
                         SKIP_RETURN_CODE 77 ENVIRONMENT "${ARG_ENV}")
endfunction()

# weir_fuzz(NAME SOURCES a.c .. CORPUS dir .. [DEPS t ..])
#
# Always a program that replays the corpus as a test of the label fuzz. With WEIR_FUZZ also a libFuzzer
# program, which a test of the label fuzzing runs for WEIR_FUZZ_SECONDS: what it finds goes on from what
# earlier runs found, in fuzz/ of the build folder; an input that fails stays there too.
# The source defines LLVMFuzzerTestOneInput.
function(weir_fuzz name)
    cmake_parse_arguments(ARG "" "" "SOURCES;CORPUS;DEPS" ${ARGN})
    add_executable(${name}_replay ${ARG_SOURCES} "${CMAKE_SOURCE_DIR}/tests/fuzz/replay_main.c"
                   "${CMAKE_SOURCE_DIR}/tests/lib/tl_watch.c")
    weir_includes(${name}_replay)
    target_link_libraries(${name}_replay PRIVATE ${ARG_DEPS} weir_flags)
    add_test(NAME ${name}_replay COMMAND ${name}_replay ${ARG_CORPUS})
    set_tests_properties(${name}_replay PROPERTIES LABELS fuzz TIMEOUT 600 SKIP_RETURN_CODE 77
                         ENVIRONMENT WEIR_TEST_LIMIT_S=590)
    if(WEIR_FUZZ)
        add_executable(${name} ${ARG_SOURCES})
        weir_includes(${name})
        target_link_libraries(${name} PRIVATE ${ARG_DEPS} weir_flags)
        target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        set(found "${CMAKE_BINARY_DIR}/fuzz/${name}")
        file(MAKE_DIRECTORY "${found}/corpus")
        # An input that takes a second is slow enough to be reported by hand; 100 is a hang on any machine.
        add_test(NAME ${name}_run
                 COMMAND ${name} -max_total_time=${WEIR_FUZZ_SECONDS} -timeout=100 -rss_limit_mb=4096
                         -print_final_stats=1 "-artifact_prefix=${found}/" "${found}/corpus" ${ARG_CORPUS})
        math(EXPR limit "${WEIR_FUZZ_SECONDS} * 3 + 600") # the corpus is read first
        set_tests_properties(${name}_run PROPERTIES LABELS fuzzing TIMEOUT ${limit})
    endif()
endfunction()

# weir_install_guest_library(TARGET)
#
# Into a folder of its own, because on the search path it must not bring anything else along: as part of the host, which
# gives it to containers, and as part of the package of a guest (packaging/), which a whole installation leaves out.
function(weir_install_guest_library target)
    set(folder "${CMAKE_INSTALL_LIBDIR}/weir/guest")
    install(TARGETS ${target} LIBRARY DESTINATION "${folder}" COMPONENT host)
    install(TARGETS ${target} LIBRARY DESTINATION "${folder}" COMPONENT guest EXCLUDE_FROM_ALL)
endfunction()
