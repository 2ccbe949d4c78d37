# cmake -DNM=... -DOBJECTS=a.o,b.o,... -P check.cmake
#
# The files of src/cpu/targets are compiled for instruction sets that the machine may lack. A function of theirs that the
# linker may take for everybody's (an inline one, a template's instance) would then crash where it is least expected. So
# each such object may define one global symbol alone, the kernels() of its own namespace.
cmake_policy(SET CMP0057 NEW)
string(REPLACE "," ";" objects "${OBJECTS}")
set(seen "")
foreach(object IN LISTS objects)
  if(NOT object MATCHES "/cpu/targets/([a-z0-9]+)\\.cpp\\.o")
    continue()
  endif()
  set(isa ${CMAKE_MATCH_1})
  string(LENGTH ${isa} length)
  set(kernels _ZN8truenorm3cpu${length}${isa}7kernelsEv)
  execute_process(COMMAND ${NM} --defined-only --extern-only --format=posix ${object}
    OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${output}")
  set(found FALSE)
  foreach(line IN LISTS lines)
    string(REGEX REPLACE " .*" "" symbol "${line}")
    if(symbol STREQUAL kernels)
      set(found TRUE)
    elseif(NOT symbol STREQUAL "DW.ref.__gxx_personality_v0") # a pointer, the same in every object
      message(SEND_ERROR "${isa}: defines ${line}, which the linker may take for everybody's")
    endif()
  endforeach()
  if(NOT found)
    message(SEND_ERROR "${isa}: does not define ${kernels}")
  endif()
  list(APPEND seen ${isa})
endforeach()
if(NOT "scalar" IN_LIST seen)
  message(SEND_ERROR "no object of src/cpu/targets among ${OBJECTS}")
endif()
message(STATUS "checked: ${seen}")
