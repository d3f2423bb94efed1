# weir_read_commands(RET)
#
# The subcommands of `weir` that people see, as rows "name|summary" of tools/commands.def.
function(weir_read_commands ret)
    set(file "${CMAKE_SOURCE_DIR}/tools/commands.def")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
    file(READ "${file}" text)
    string(REGEX MATCHALL "WEIR_COMMAND\\(\"[^\"]+\", [a-z_]+,[ \n]+\"[^\"]+\"\\)" rows "${text}")
    list(TRANSFORM rows REPLACE "^WEIR_COMMAND\\(\"([^\"]+)\", [a-z_]+,[ \n]+\"([^\"]+)\"\\)$" "\\1|\\2")
    set(${ret} "${rows}" PARENT_SCOPE)
endfunction()
