# Fails if an object file of an instruction set defines a symbol that code compiled for another could be linked to:
# the linker keeps one copy of an inline function, and not every processor could run it.
#
#   cmake -DNM=nm -DOBJECTS=FILE;FILE... -P isa_symbols.cmake
set(checked 0)
set(found "")
foreach(object IN LISTS OBJECTS)
    if(NOT object MATCHES "/isa_[a-z0-9_]+\\.cpp")
        continue()
    endif()
    execute_process(COMMAND ${NM} -C ${object} OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "[0-9a-f]+ [WVu] [^\n]*" weak "${symbols}")
    foreach(symbol IN LISTS weak)
        string(APPEND found "\n${object}: ${symbol}")
    endforeach()
    math(EXPR checked "${checked} + 1")
endforeach()
if(checked LESS 2)
    message(FATAL_ERROR "Only ${checked} object files of instruction sets among: ${OBJECTS}")
endif()
if(found)
    message(FATAL_ERROR "Weak symbols in kernels:${found}")
endif()
message(STATUS "${checked} object files, no weak symbol")
