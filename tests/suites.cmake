# Writes a file for ctest with a test for each suite of a GoogleTest program, which takes a process for each suite instead of
# each test:
#   cmake -DPROGRAM=FILE -DLAYER=NAME -DLEFT_OUT=-PATTERN… -DOUTPUT=FILE [-DEMULATOR=COMMAND] -P suites.cmake
# The tests are named LAYER.SUITE. A suite with more tests starts earlier.
execute_process(COMMAND ${EMULATOR} ${PROGRAM} --gtest_list_tests --gtest_filter=${LEFT_OUT}
  OUTPUT_VARIABLE listed RESULT_VARIABLE code TIMEOUT 120)
if(NOT code EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} does not list its tests: ${code}")
endif()
# What a parameter prints may have any characters.
string(REGEX REPLACE "[][;\\]" "_" listed "${listed}")
string(REPLACE "\n" ";" lines "${listed}")
set(command "[[${PROGRAM}]]")
if(EMULATOR)
  string(PREPEND command "[[${EMULATOR}]] ")
endif()
set(text "")
set(suite "")
set(count 0)
foreach(line IN LISTS lines ITEMS "end.")
  if(line MATCHES "^  ")
    math(EXPR count "${count} + 1")
  elseif(line MATCHES "^([^ ]+)\\.( |$)")
    set(next "${CMAKE_MATCH_1}")
    if(count GREATER 0)
      string(APPEND text "add_test([[${LAYER}.${suite}]] ${command} [[--gtest_filter=${suite}.*${LEFT_OUT}]] --gtest_brief=1)\n"
        "set_tests_properties([[${LAYER}.${suite}]] PROPERTIES TIMEOUT 600 COST ${count})\n")
    endif()
    set(suite "${next}")
    set(count 0)
  endif()
endforeach()
file(WRITE ${OUTPUT} "${text}")
